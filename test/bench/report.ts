// Results as Markdown.
import type { ContenderName } from './contenders.ts'
import type { Experiment, Goal, Results } from './experiments.ts'
import { median, pairs } from './statistics.ts'

const titles: Readonly<Record<ContenderName, string>> = {
  direct: 'direct (the ceiling)',
  'http-proxy-3': 'bare http-proxy-3 pass-through',
  undici: 'bare undici translation',
  gateway: '**this gateway**',
  embedded: '**… with the embedded store**',
  redis: '**… with Redis**',
  workers: '**… with Redis, two workers**'
}

/** @returns the values of one number, burst by burst */
export function valuesOf (results: Results, name: ContenderName, key: string): number[] {
  return (results.get(name) ?? []).map((sample) => sample[key] ?? NaN)
}

function summary (values: readonly number[], digits: number): string {
  const known = values.filter((value) => !Number.isNaN(value))
  if (known.length === 0) return '–'
  return `${median(known).toFixed(digits)} (${Math.min(...known).toFixed(digits)}–${Math.max(...known).toFixed(digits)})`
}

export function table ({ title, columns, ratio, name: experiment }: Experiment, results: Results): string {
  const ratioTitle = ratio === undefined
    ? []
    : [`${columns.find((column) => column.key === ratio.key)?.title ?? ratio.key} ÷ ${ratio.to}`]
  const heads = ['', ...columns.map((column) => column.title), ...ratioTitle]
  const rows = [...results.keys()].map((name) => [
    titles[name],
    ...columns.map(({ key, digits }) => summary(valuesOf(results, name, key), digits)),
    ...(ratio === undefined
      ? []
      : [
        summary(pairs(valuesOf(results, name, ratio.key), valuesOf(results, ratio.to, ratio.key), (a, b) => a / b), 2)
      ])
  ])
  const bursts = Math.max(0, ...[...results.values()].map((samples) => samples.length))
  return [
    `### ${experiment}`,
    '',
    wrapped(`${title}. ${bursts} interleaved bursts; median (min–max)`),
    '',
    ...[heads, heads.map((_head, column) => column === 0 ? '---' : '---:'), ...rows].map((cells) =>
      `| ${cells.join(' | ')} |`
    ),
    ''
  ].join('\n')
}

export function goalList (goals: readonly Goal[]): string {
  return ['### Goals', '',
    ...goals.map(({ text, isMet, found }) => wrapped(`- ${isMet ? 'PASS' : 'MISS'} ${text}: ${found}`)), ''].join('\n')
}

/** In lines of a page's width; those of a list's item begin where its text does. */
function wrapped (text: string): string {
  return text.match(/\S.{0,117}(?= |$)/g)!.join(text.startsWith('- ') ? '\n  ' : '\n')
}

/**
 * @param dialect whose figures they are: each has its marks on the page
 * @param text what the bench has printed
 * @throws {Error} the page has no such marks
 */
export function withFigures (page: string, dialect: string, text: string, at: Date): string {
  const [begin, end] = [`<!-- figures ${dialect} -->\n`, `<!-- /figures ${dialect} -->`]
  const [from, to] = [page.indexOf(begin), page.indexOf(end)]
  if (from === -1 || to < from) throw new Error(`the page has nothing between ${begin.trim()} and ${end}`)
  const figures = text.replace(/^## .*\n+/m, '').trimEnd()
  return `${page.slice(0, from)}${begin}Written by \`npm run bench -- --page\` on ${at.toISOString().slice(0, 10)}.\n\n` +
    `${figures}\n${page.slice(to)}`
}
