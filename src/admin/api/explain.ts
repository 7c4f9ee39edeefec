// Explains a request by a dry run: each plugin's verdict, the targets that would be asked, the most that it could cost.
import type { ChannelConfig } from '../../config/config.ts'
import { suggest } from '../../config/check/suggest.ts'
import { viewCost, viewLimits, viewPrices } from '../../catalog/cost-view.ts'
import { type GatewayError, isGatewayError } from '../../errors.ts'
import type { Exchange } from '../../core/exchange.ts'
import { type ApiKey, type Body, Model, Plan, Variant, WorstCase } from '../../core/facts.ts'
import { itemPrice, rateOf } from '../../money/item-price.ts'
import { priceAt } from '../../money/price-schedule.ts'
import type { Rehearsal } from '../../pipeline/dry-run.ts'
import { type ApiParts, type Operation, REQUEST_LIMIT } from './operation.ts'
import { choice, flag, keyUsage, list, money, named, object, orNull, priceAnswer, text, whole } from './answers.ts'
import { Refusal, refuseMistakes } from './refusal.ts'
import { judge, question } from './schemas.ts'

interface Wanted {
  readonly key: string
  readonly route: string
  readonly headers: Readonly<Record<string, string>>
  readonly ip: string
  readonly body?: Body
}

type View = Readonly<Record<string, unknown>>

const targetFields = {
  channel: text('The channel of the model.'),
  upstream: text('The upstream.'),
  model: text('The name that the upstream knows the model by.')
}

const explanation = object('Explanation', 'What would happen to a request, and why.', {
  key: text('The key.'),
  key_state: choice('Whether it is served.', ['active', 'frozen', 'expired']),
  account: orNull(text('Who pays; null: the account does not exist.')),
  ip: text('The address of the client.'),
  route: text('The route.'),
  config_generation: whole('The configuration; 0: no gateway runs.'),
  allowed: flag('false: it would be refused.'),
  then: choice('What would happen.',
    ['refused', 'answered by a plugin', 'sent to a target', 'forwarded', 'answered by the gateway']),
  refusal: orNull(object('ClientError', 'The error that the client would get.', {
    status: whole('Of the answer.'),
    code: text('Such as model_not_allowed.'),
    type: text('Such as permission_error.'),
    message: text('In words for people.'),
    param: orNull(text('The field that is wrong.')),
    retry_after: whole('Seconds.'),
    cause: text('Of a plugin that threw.')
  }, ['retry_after', 'cause'])),
  steps: list('The hooks that were called, in their order.', object('Step', 'A hook.', {
    who: text('The plugin, or core.'),
    hook: text('The hook.'),
    verdict: choice('How it ended.', ['passed', 'answered', 'refused', 'failed']),
    wrote: list('Facts.', text('The name of a fact.'))
  })),
  model: orNull(text('The model; null: it is not known.')),
  alias: orNull(text('The alias that the client named; null: none.')),
  targets: list('Who would be asked, in this order.', object('PlannedTarget', 'A target.', {
    ...targetFields,
    priority: orNull(whole('Its tier; null: a plugin has planned it.')),
    weight: orNull(whole('Its share of the tier; null: a plugin has planned it.')),
    price_version: orNull(text('The price; null: the variant is not sold.'))
  }, ['channel', 'model', 'priority', 'weight', 'price_version'])),
  in_maintenance: list('Targets of the model that are left out.', object('LeftOutTarget', 'A target.', targetFields)),
  max_cost_usd: money('The most that it could cost.'),
  held_at_start_usd: money('What would be held before the upstream is asked.'),
  max_input_tokens: whole('A bound.'),
  max_output_tokens: whole('A bound.'),
  prices: list('Of the channels that may answer.', object('ChannelPrice', 'The price of a channel.', {
    channel: text('The channel.'),
    price: priceAnswer,
    until: orNull(text('When another follows; null: none is announced.'))
  })),
  limits: orNull(object('MoneyLeft', 'What is left to account and key.', {
    balance_usd: money('Of the account.'),
    available_usd: money('The balance less what is held.'),
    usage_limit_usd: orNull(money('Of the key, in total; null: none.')),
    usage_limit_day_usd: orNull(money('Of the key, per day; null: none.')),
    usage_limit_month_usd: orNull(money('Of the key, per month; null: none.')),
    ...keyUsage
  })),
  answer_headers: named('Headers of the answer.', text('A header.'))
})

export function explainOperations ({ services: { directory, now }, config, rehearse }: ApiParts): readonly Operation[] {
  const judgeQuestion = judge(question)

  return [{
    method: 'POST',
    path: '/explain',
    name: 'explainRequest',
    isCostly: true,
    needs: 'viewer',
    takes: question,
    gives: explanation,
    refuses: ['not_found'],
    bodyLimit: REQUEST_LIMIT,
    cuts: 'body',
    summary:
      'What would happen to a request, and why: verdicts in the order of the plugins, targets in an order drawn by ' +
        'weight, the worst-case price, and what is left. Calls nobody, charges nothing, counts nothing.',
    async answer ({ body: sent, cut, by }) {
      const asked = { ...sent as object }
      judgeQuestion(asked)
      const { key: id, route, headers, ip, body } = asked as Wanted
      const [method, path] = route.includes(' ') ? route.split(' ') as [string, string] : ['POST', route]
      const { owner, state } = find(id)
      let rehearsal: Rehearsal
      try {
        rehearsal = await rehearse({ owner: state === 'expired' ? undefined : owner, method, path, address: ip,
          turn: `admin ${by.token ?? ''}`,
          body: cut === undefined ? body : async (exchange) =>
            await exchange.snapshot.bodies!.openCut(cut, exchange, exchange.route.readsInThreads),
          headers: Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value])) })
      } catch (thrown) {
        if (isGatewayError(thrown)) refuseMistakes([{ path: '/route', message: thrown.message.replace(/\.$/, '') }])
        throw thrown
      }
      return { status: 200,
        body: { key: id, key_state: state, account: owner?.account.id ?? null, ip, ...await view(rehearsal) } }
    }
  }]

  /** Finds a key, also one that is refused: the dry run reports that. @throws {Refusal} the key does not exist */
  function find (id: string): { readonly owner: ApiKey | undefined, readonly state: 'active' | 'frozen' | 'expired' } {
    const { keys, accounts } = config()
    const declared = keys.find((key) => key.id === id)
    const kept = directory.keptKey(id)?.record
    const settings = declared ?? (kept?.deleted_at === undefined ? kept?.settings : undefined)
    if (settings === undefined) {
      throw new Refusal(
        'not_found',
        `There is no key ${JSON.stringify(id.slice(0, 100))}${hint(id, [...keys, ...directory.keptKeys()])}. GET ` +
        '/admin/v1/keys lists all.'
      )
    }
    const account = accounts.find((one) => one.id === settings.account) ?? directory.account(settings.account)
    const isExpired = declared === undefined && kept?.expires_at !== undefined && Date.parse(kept.expires_at) <= now()
    return {
      owner: account && { key: { ...settings, secret: '***' }, account },
      state: settings.frozen ? 'frozen' : isExpired ? 'expired' : 'active'
    }
  }
}

function hint (id: string, keys: readonly { readonly id: string }[]): string {
  const near = suggest(id, keys.map((key) => key.id), 0)
  return near?.startsWith('did') === true ? ` (${near})` : ''
}

async function view ({ exchange, steps, error, reply }: Rehearsal): Promise<View> {
  const { route, snapshot, answerHeaders } = exchange
  const { endpoint } = route
  const then = error !== undefined ? 'refused' : reply !== undefined ? 'answered by a plugin'
    : endpoint.kind === 'model'
      ? 'sent to a target'
      : endpoint.kind === 'forward' ? 'forwarded' : 'answered by the gateway'
  return {
    route: route.name,
    config_generation: snapshot.generation,
    allowed: error === undefined,
    then,
    refusal: error === undefined ? null : viewError(error),
    steps,
    model: exchange.find(Model)?.id ?? null,
    alias: exchange.asked ?? null,
    targets: endpoint.kind === 'forward' ? [{ upstream: endpoint.upstream }] : targetsOf(exchange),
    in_maintenance: leftOut(exchange),
    ...viewCost(exchange),
    prices: viewPrices(exchange),
    limits: await viewLimits(exchange),
    answer_headers: answerHeaders
  }
}

function viewError ({ status, code, type, message, param, retryAfter, row, cause }: GatewayError): View {
  return {
    status, code, type, message, param, ...(retryAfter !== undefined && { retry_after: retryAfter }),
    // Not for clients, but for the author of the plugin that threw.
    ...(row === 'server_error' && cause !== undefined &&
      { cause: cause instanceof Error ? `${cause.name}: ${cause.message}` : String(cause) })
  }
}

function targetsOf (exchange: Exchange): readonly View[] {
  const { attempts } = exchange.find(Plan) ?? { attempts: [] }
  const at = exchange.find(WorstCase)?.at
  return attempts.map(({ channel, upstream, model, sold }) => ({
    channel, upstream, model, ...drawnBy(sold, upstream, model),
    ...(at !== undefined && { price_version: versionOf(exchange, sold, at) })
  }))
}

/** The version of the price; of an image or video model, that of the matching row. */
function versionOf (exchange: Exchange, sold: ChannelConfig, at: number): string | null {
  const variant = exchange.find(Variant)
  return variant === undefined ? priceAt(sold, at).price.version : rateOf(variant, itemPrice(sold))?.version ?? null
}

/** Null: a plugin has made the plan, with targets that the configuration does not have. */
function drawnBy ({ targets }: ChannelConfig, upstream: string, model: string): View {
  const target = targets.find((one) => one.upstream === upstream && one.model === model)
  return { priority: target?.priority ?? null, weight: target?.weight ?? null }
}

/** The model's targets that are in no plan at present, because of their channel or their upstream. */
function leftOut (exchange: Exchange): readonly View[] {
  const { upstreams } = exchange.snapshot.config
  return Object.entries(exchange.find(Model)?.channels ?? {}).flatMap(([channel, { maintenance, targets }]) =>
    targets.filter(({ upstream }) => maintenance || upstreams[upstream]!.maintenance).map(({ upstream, model }) => ({
      channel,
      upstream,
      model
    }))
  )
}
