// The live configuration in the admin API: what is live, how it came to be, and what would come of another one.
import type { Judgement } from '../../config/state.ts'
import { anything, choice, flag, instant, list, object, problemAnswer, text, whole } from './answers.ts'
import type { ApiAnswer, Call, Operation, RunningParts } from './operation.ts'
import { configText, judge } from './schemas.ts'

/** Bytes of a text with ten thousand models. Parsed as JSON on the event loop: 40 ms. */
const BODY_LIMIT = 4 * 1024 * 1024

const reason = choice('What began it.', ['start', 'file', 'sighup'])

const state = {
  generation: whole('Counts the configurations that went live since the start.'),
  hash: text('Of all that a reload applies: processes with equal hashes run the same.'),
  loaded_at: instant('When it went live.'),
  last_reload: object('LastReload', 'How the last reload went.', {
    ok: flag('false: it was refused, and the configuration before it works on.'),
    at: instant('When it ended.'),
    reason,
    duration_ms: whole('How long it took.')
  }),
  problems: list('Why the last one was refused; empty: it was not.', problemAnswer)
}

const diff = {
  changes: list('The first 200 differences.', object('ConfigChange', 'A difference between two configurations.', {
    path: text('JSON pointer, with names in the place of numbers.'),
    what: choice('What has happened.', ['added', 'removed', 'changed', 'reordered']),
    before: text('JSON, 200 characters of it, with secrets as "***"; absent: there was none.'),
    after: text('JSON, 200 characters of it, with secrets as "***"; absent: there is none.')
  }, ['before', 'after'])),
  more_changes: whole('How many are left out.')
}

const configuration = object('Configuration', 'The live configuration, and how the last reload went.', {
  ...state,
  source: text('The file.'),
  warnings: list('What is odd in it.', problemAnswer),
  config: anything('What gateway.yaml says, with defaults filled in, durations in milliseconds, sizes in bytes, and ' +
    'secrets as "***".'),
  generations: list('The last 20 that went live, the newest first.',
    object('Generation', 'A configuration that went live, and its difference from the one before.', {
      generation: state.generation, hash: state.hash, at: instant('When it went live.'), reason, ...diff
    })),
  workers: list('Of a primary: its workers.', object('Worker', 'A worker; of one that does not answer only why.', {
    worker: whole('Its number, from 1.'),
    pid: whole('Its process.'),
    reasons: list('Why load balancers should send requests elsewhere; empty: ready.', text('A reason.')),
    ...state
  }, ['pid', ...Object.keys(state)]))
}, ['workers'])

const checked = {
  ok: flag('Whether it could be used, as far as it was looked at.'),
  problems: list('Mistakes.', problemAnswer),
  warnings: list('What is odd.', problemAnswer),
  unread: list('Values of the environment and of secret files, which were not looked at.', problemAnswer),
  is_cut: flag('true: of problems, warnings or values only the first 200 are told.')
}
const check = object('ConfigCheck', 'What would come of a configuration.', checked)
const comparison = object('ConfigComparison', 'What would come of a configuration, and what it would change.', {
  ...checked, ...diff
})

export function configOperations (parts: RunningParts): readonly Operation[] {
  const config = new ConfigApi(parts)
  const judged = { method: 'POST', needs: 'viewer', isCostly: true, takes: configText, bodyLimit: BODY_LIMIT } as const
  return [
    {
      method: 'GET',
      path: '/config',
      name: 'getConfig',
      summary: 'The live configuration. The last 20 that went live, each with its difference from the one before; ' +
        'how the last reload went, with the problems of one that was refused.',
      gives: configuration,
      answer: async () => ({ status: 200, body: await parts.status() })
    },
    {
      ...judged,
      path: '/config/check',
      name: 'checkConfig',
      summary: 'Looks for the mistakes of a text of gateway.yaml. Nothing goes live. It may include the files of the ' +
        'live configuration and name its plugins; no other file is read, nor the environment, nor a secret file: ' +
        'values that come from there are listed as `unread`.',
      gives: check,
      answer: (call) => config.check(call)
    },
    {
      ...judged,
      path: '/config/diff',
      name: 'compareConfig',
      summary: 'What a text of gateway.yaml would change in the live configuration. It is looked at as by ' +
        'checkConfig; with a mistake in it there are no changes. What is below /server and /store changes with a ' +
        'restart only.',
      gives: comparison,
      answer: (call) => config.compare(call)
    }
  ]
}

class ConfigApi {
  readonly #judge: RunningParts['judge']
  readonly #judgeBody = judge(configText)
  #turn: Promise<unknown> = Promise.resolve()

  constructor ({ judge }: RunningParts) {
    this.#judge = judge
  }

  async check (call: Call): Promise<ApiAnswer> {
    const { changes: _changes, more_changes: _more, ...found } = await this.#inTurn(call)
    return { status: 200, body: found }
  }

  async compare (call: Call): Promise<ApiAnswer> {
    return { status: 200, body: await this.#inTurn(call) }
  }

  /** One at a time: each may take a thread that loads all modules, and much memory. */
  async #inTurn ({ body }: Call): Promise<Judgement> {
    this.#judgeBody(body)
    const { text } = body as { readonly text: string }
    const turn = this.#turn.then(async () => await this.#judge(text))
    this.#turn = turn.catch(() => {})
    return await turn
  }
}
