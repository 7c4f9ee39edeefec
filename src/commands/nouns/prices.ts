// `gateway prices`: what is sold, now and as announced.
import { isMap } from '../../config/yaml/position.ts'
import { pages } from '../answer.ts'
import { table } from '../print.ts'
import { print } from '../stdout.ts'
import type { Noun } from '../verb.ts'

const PRICE_COLUMNS = ['model', 'kind', 'channel', 'enabled', 'price', 'since', 'until', 'then']

const PRICES_NOTE =
  '  US dollars per 1M tokens of input and output, or per image or second of video; and what is announced.\n'

export const prices: Noun = {
  '': {
    takes: [], options: ['model', 'channel'], note: PRICES_NOTE,
    async run (client, { values, json }) {
      const rows: Record<string, unknown>[] = []
      for await (const page of pages(client, '/prices', values)) rows.push(...page)
      await print(json ? JSON.stringify(rows) + '\n' : table(rows.map(priceRow), PRICE_COLUMNS))
      return 0
    }
  }
}

/** A price in one cell. */
function priceRow ({ price, announced, ...row }: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const next = Array.isArray(announced) ? announced[0] as Readonly<Record<string, unknown>> | undefined : undefined
  return { ...row, price: shownPrice(price), then: next === undefined ? null : shownPrice(next['price']) }
}

function shownPrice (price: unknown): string {
  if (Array.isArray(price)) {
    return (price as readonly { readonly when?: object, readonly usd?: string, readonly usd_per_second?: string }[])
      .map(({ when = {}, usd, usd_per_second: second }) => [usd ?? `${second}/s`, ...Object.values(when)].join(' '))
      .join('; ')
  }
  return isMap(price) ? `${String(price['input'])} / ${String(price['output'])}` : String(price)
}
