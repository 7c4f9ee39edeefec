// What is sold at which price, now and as announced.
import type { ChannelConfig, ModelConfig } from '../../config/config.ts'
import { isSoldByTokens, kinds } from '../../config/sections/modalities.ts'
import { itemPriceOf } from '../../money/item-price.ts'
import { type PriceSpan, priceAt, spansOf } from '../../money/price-schedule.ts'
import { choice, flag, instant, list, object, orNull, page, priceAnswer, text } from './answers.ts'
import { type ApiParts, type Operation, pageOf, readQuery } from './operation.ts'

const QUERY = ['model', 'channel', 'after', 'limit']

const sold = object('SoldModel', 'A model in one of its channels, and its prices.', {
  id: text('Of this row: the model and the channel.'),
  model: text('The id that clients send.'),
  name: text('For people.'),
  provider: text('Who made it.'),
  kind: choice('What it gives.', kinds),
  channel: text('How it is sold.'),
  enabled: flag('false: it is switched off.'),
  maintenance: flag('true: model or channel are in maintenance.'),
  price: priceAnswer,
  since: orNull(instant('From when the price holds; null: always.')),
  until: orNull(instant('When the next one follows; null: none is announced.')),
  announced: list('The prices that follow, the next one first.', object('AnnouncedPrice', 'A price to come.', {
    from: instant('When it begins.'),
    price: priceAnswer
  }))
})

export function priceOperations ({ config, services: { now } }: ApiParts): readonly Operation[] {
  return [{
    method: 'GET',
    path: '/prices',
    name: 'listPrices',
    isCostly: true,
    summary: 'What each model costs in each of its channels, and the prices that are announced, with their day.',
    query: QUERY,
    gives: page(sold),
    answer ({ query: sent }) {
      const query = readQuery(sent, QUERY)
      const [model, channel] = [query.get('model'), query.get('channel')]
      const rows = config().models.filter(({ id }) => model === undefined || id === model).flatMap((one) =>
        Object.entries(one.channels).filter(([name]) => channel === undefined || name === channel)
          .map(([name, own]) => ({ id: `${one.id} ${name}`, one, name, own }))
      )
      const { rows: shown, next } = pageOf(rows, query)
      return { status: 200,
        body: { data: shown.map(({ id, one, name, own }) => ({ id, ...view(one, name, own, now()) })), next } }
    }
  }]
}

type View = Readonly<Record<string, unknown>>

function view (model: ModelConfig, channel: string, own: ChannelConfig, now: number): View {
  const { id, name, provider, kind, maintenance } = model
  return { model: id, name, provider, kind, channel, enabled: own.enabled, maintenance: maintenance || own.maintenance,
    ...isSoldByTokens(kind) ? inTime(own, now) : { price: itemPriceOf(own), since: null, until: null, announced: [] } }
}

function inTime (own: ChannelConfig, now: number): View {
  const { from, until, written } = priceAt(own, now)
  return { price: shown(written), since: instantOf(from), until: instantOf(until),
    announced: spansOf(own).filter((span) => span.from > now)
      .map((span) => ({ from: instantOf(span.from), price: shown(span.written) })) }
}

/** Without its own beginning. */
function shown (written: PriceSpan['written']): unknown {
  return written === 'free' ? written : { ...written, from: undefined }
}

/** Null: for ever. */
function instantOf (ms: number): string | null {
  return Math.abs(ms) === Infinity ? null : new Date(ms).toISOString()
}
