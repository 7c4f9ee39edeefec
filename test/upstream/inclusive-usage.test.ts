// One reader of usage whose input includes what came from a cache: the reports of vendors, with what they charge.
import fc from 'fast-check'
import t from 'tap'
import { inclusiveUsage } from '../../src/upstream/dialects/inclusive-usage.ts'

type Counts = readonly [input: number, read: number, written: number, output: number]

const CHAT = { input: 'prompt_tokens', output: 'completion_tokens' } as const
const RESPONSES = { input: 'input_tokens', output: 'output_tokens' } as const

/** The same report in the words of the Responses API. */
function renamed (report: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  return Object.fromEntries(Object.entries(report).map(([name, value]) =>
    [name.replace(/^prompt_tokens/, 'input_tokens').replace(/^completion_tokens/, 'output_tokens'), value]))
}

function counts (usage: Readonly<Record<string, unknown>> | undefined): Counts | undefined {
  return usage && [usage.input_tokens, usage.cache_read_input_tokens, usage.cache_creation_input_tokens,
    usage.output_tokens] as unknown as Counts
}

const details = (of: object): object => ({ prompt_tokens_details: of })

const REPORTS: Readonly<Record<string, readonly [report: object, counts: Counts | undefined]>> = {
  'OpenAI: cached tokens are part of the prompt, thoughts part of the completion': [{ prompt_tokens: 1200,
    completion_tokens: 90, total_tokens: 1290, ...details({ cached_tokens: 1024 }),
    completion_tokens_details: { reasoning_tokens: 64 } }, [176, 1024, 0, 90]],
  'U3: Google counts thoughts in the total alone': [{ prompt_tokens: 20, completion_tokens: 198, total_tokens: 623 },
    [20, 0, 0, 603]],
  'U3: and xAI names them': [{ prompt_tokens: 307, completion_tokens: 26, total_tokens: 560,
    completion_tokens_details: { reasoning_tokens: 227 }, ...details({ cached_tokens: 300 }) }, [7, 300, 0, 253]],
  'U3: a total below the sum says nothing': [{ prompt_tokens: 20, completion_tokens: 5, total_tokens: 7 },
    [20, 0, 0, 5]],
  'U4: protobuf leaves a zero out': [{ prompt_tokens: 20, total_tokens: 500 }, [20, 0, 0, 480]],
  'U4: and null is no count': [{ prompt_tokens: null, completion_tokens: 3, total_tokens: 7 }, [4, 0, 0, 3]],
  'U4: half of it without a total': [{ completion_tokens: 3 }, undefined],
  'U4: what is no number of tokens': [{ prompt_tokens: '20', completion_tokens: 3, total_tokens: 23 }, undefined],
  'U5: written tokens at the top': [{ prompt_tokens: 1000, completion_tokens: 5, cache_creation_input_tokens: 600,
    cache_read_input_tokens: 300 }, [100, 300, 600, 5]],
  ...Object.fromEntries(['cache_write_tokens', 'cache_creation_tokens', 'cached_creation_tokens',
    'cache_creation_input_tokens'].map((name) => [`U5: ${name} in the details`, [{ prompt_tokens: 1000,
    completion_tokens: 5, ...details({ cached_tokens: 300, [name]: 600 }) }, [100, 300, 600, 5]]])),
  'U5: cached tokens beside the prompt, as the total shows': [{ prompt_tokens: 100, completion_tokens: 5,
    total_tokens: 1005, ...details({ cached_tokens: 600 }), cache_creation_input_tokens: 300 }, [100, 600, 300, 5]],
  'V1: more thoughts than completion': [{ prompt_tokens: 61, completion_tokens: 10, total_tokens: 71,
    completion_tokens_details: { reasoning_tokens: 96 } }, [61, 0, 0, 106]],
  'V2: more from a cache than the prompt has': [{ prompt_tokens: 7, completion_tokens: 5, total_tokens: 12,
    ...details({ cached_tokens: 163 }) }, [7, 163, 0, 5]],
  'V3: the same tokens read and written': [{ prompt_tokens: 2168, completion_tokens: 5, total_tokens: 2173,
    ...details({ cached_tokens: 2161, cache_write_tokens: 2161 }) }, [7, 2161, 2161, 5]],
  'V4: audio in the total alone is input': [{ prompt_tokens: 20, completion_tokens: 5, total_tokens: 400,
    ...details({ audio_tokens: 375 }) }, [395, 0, 0, 5]],
  'V4: and none where it is in the prompt': [{ prompt_tokens: 395, completion_tokens: 5, total_tokens: 400,
    ...details({ audio_tokens: 375 }) }, [395, 0, 0, 5]],
  'nothing at all': [{}, undefined]
}

t.test('reports, in the words of both APIs', async (t) => {
  for (const [name, [report, expected]] of Object.entries(REPORTS)) {
    t.strictSame(counts(inclusiveUsage(report, CHAT)), expected, name)
    t.strictSame(counts(inclusiveUsage(renamed(report as Readonly<Record<string, unknown>>), RESPONSES)), expected,
      `${name}, as a response`)
  }
})

t.test('V1: where thoughts are counted, as the operator says', async (t) => {
  const report = (output: number, thought: number, total: number): object => ({ prompt_tokens: 61,
    completion_tokens: output, total_tokens: total, completion_tokens_details: { reasoning_tokens: thought } })
  for (const [thoughts, output, thought, total, expected] of [
    ['apart', 100, 96, 161, 196], ['apart', 100, 96, 257, 196], ['apart', 100, 0, 161, 100],
    ['inside', 100, 96, 161, 100], ['inside', 10, 96, 71, 10], ['inside', 100, 96, 257, 100],
    [undefined, 100, 96, 161, 100], [undefined, 10, 96, 71, 106], [undefined, 100, 96, 257, 196]
  ] as const) {
    t.strictSame(counts(inclusiveUsage(report(output, thought, total), CHAT, thoughts)), [61, 0, 0, expected],
      `${String(thoughts)}: ${output}, ${thought} of ${total}`)
  }
})

t.test('whatever is reported: no count is negative, and at least prompt and completion are charged', async () => {
  const count = fc.oneof(fc.nat({ max: 5000 }), fc.constant(0), fc.constant(undefined), fc.constant(null),
    fc.constantFrom<unknown>('7', -1, 1.5, Number.NaN, {}))
  const report = fc.record({ prompt_tokens: count, completion_tokens: count, total_tokens: count,
    cached_tokens: count, cache_creation_input_tokens: count, cache_read_input_tokens: count,
    prompt_tokens_details: fc.option(fc.record({ cached_tokens: count, cache_write_tokens: count,
      audio_tokens: count })),
    completion_tokens_details: fc.option(fc.record({ reasoning_tokens: count })) })
  fc.assert(fc.property(report, (one) => {
    const found = counts(inclusiveUsage(one, CHAT))
    if (found === undefined) return true
    const of = (value: unknown): number => Number.isSafeInteger(value) ? value as number : 0
    return found.every((value) => Number.isSafeInteger(value) && value >= 0) &&
      found.reduce((sum, value) => sum + value, 0) >= of(one.prompt_tokens) + of(one.completion_tokens)
  }), { numRuns: 5000 })
})
