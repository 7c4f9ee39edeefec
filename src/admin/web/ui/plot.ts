// Plots over time. uPlot is loaded when the first one is shown.
import type uPlot from 'uplot'
import type { VNode } from 'preact'
import { useEffect, useRef } from 'preact/hooks'
import { html } from './html.ts'
import { say } from './parts.ts'

export interface Line {
  readonly name: string
  /** one for each time; null: nothing is there */
  readonly values: readonly (number | null)[]
}

interface PlotProps {
  readonly title: string
  /** seconds since the epoch, ascending */
  readonly times: readonly number[]
  readonly lines: readonly Line[]
  /** of the axis, such as "Europe/Berlin"; absent: the reader's */
  readonly zone?: string
}

/** Names that the style sheet knows, so that they fit both themes. */
const COLOURS = ['--c1', '--c2', '--c3', '--c4', '--c5', '--c6', '--c7', '--c8']
const HEIGHT = 240

/** A plot is a picture: what stands in it also stands in a table beside it. */
export function Plot ({ title, times, lines, zone }: PlotProps): VNode {
  const box = useRef<HTMLDivElement>(null)
  useEffect(() => {
    const element = box.current!
    let plot: uPlot | undefined
    let isGone = false
    const draw = async (): Promise<void> => {
      const { default: Drawing } = await import('uplot')
      if (isGone) return
      plot?.destroy()
      const axis = { stroke: colour(element, '--quiet'), grid: { stroke: colour(element, '--line'), width: 1 },
        ticks: { stroke: colour(element, '--line'), width: 1 } }
      plot = new Drawing({
        width: element.clientWidth, height: HEIGHT, legend: { show: false }, cursor: { drag: { x: false, y: false } },
        ...(zone !== undefined && { tzDate: (at: number) => Drawing.tzDate(new Date(at * 1000), zone) }),
        axes: [axis, { ...axis, size: 70, values: (_: uPlot, splits: number[]) => splits.map((value) =>
          value.toLocaleString(undefined, { maximumSignificantDigits: 3 })) }],
        series: [{}, ...lines.map(({ name }, i) => ({ label: name, width: 2, points: { show: times.length < 60 },
          stroke: colour(element, COLOURS[i % COLOURS.length]!), spanGaps: true }))]
      }, [times, ...lines.map(({ values }) => values)] as unknown as uPlot.AlignedData, element)
    }
    const again = (): void => { draw().catch(() => { say('The plot could not be loaded; the table has its numbers.') }) }
    const size = new ResizeObserver(() => { plot?.setSize({ width: element.clientWidth, height: HEIGHT }) })
    const theme = new MutationObserver(again)
    const dark = matchMedia('(prefers-color-scheme: dark)')
    again()
    size.observe(element)
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme'] })
    dark.addEventListener('change', again)
    return () => {
      isGone = true
      size.disconnect()
      theme.disconnect()
      dark.removeEventListener('change', again)
      plot?.destroy()
    }
  }, [times, lines, zone])
  return html`<figure><figcaption>${title}<span class="legend">${lines.map(({ name }, i) =>
    html`<span class="line c${i % COLOURS.length + 1}">${name}</span>`)}</span></figcaption>
    <div ref=${box} class="plot" role="img" aria-label="${title}: the table below has its numbers"></div></figure>`
}

function colour (element: Element, name: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim()
}
