// The usage that a client gets: the counts of the bill, whatever an upstream leaves out, repeats as zero or counts
// wrongly. What says the same passes as it came.
import { asRecord, type Json } from '../../src/base/json.ts'
import { replyChange } from '../../src/core/reply-step.ts'
import { SseEvent } from '../../src/core/sse.ts'
import { isInputReported, isSameUsage, nothingReported, readUsage, reportedInput, type ReportedUsage, shownIn,
  type Usage, vendorUsageOf } from '../../src/money/usage.ts'

/** @returns whether a client that has read this reads what is charged */
export function isShown (shown: ReportedUsage | undefined, charged: Usage): boolean {
  return shown !== undefined && isSameUsage(reportedInput(shown, shown.output), charged)
}

/** Of a whole answer. */
export const showUsage = replyChange('billing-meter-usage', (message, _exchange, charged: Usage) =>
  ({ ...message, usage: { ...asRecord(message.usage), ...vendorUsageOf(charged) } }))

/** Of one stream. */
export class ShownUsage {
  /** what a client has read so far */
  #shown: ReportedUsage = nothingReported

  /** @param estimate of the input, where that is not reported yet */
  start (event: SseEvent, estimate: () => number): SseEvent {
    const data = asRecord(event.json)
    const message = asRecord(data.message)
    const usage = asRecord(message.usage)
    const reported = readUsage(usage)
    if (shownIn(usage, reported) !== undefined) { this.#shown = reported; return event }
    const input = isInputReported(reported) ? reported.input ?? 0 : estimate()
    const whole = { ...usage, ...vendorUsageOf(reportedInput({ ...reported, input }, reported.output)) }
    this.#shown = readUsage(whole)
    return SseEvent.of(event.event, { ...data, message: { ...message, usage: whole } })
  }

  end (event: SseEvent, charged: Usage): SseEvent {
    const data = asRecord(event.json)
    const usage = asRecord(data.usage)
    const isWhole = shownIn({ ...usage, input_tokens: usage.input_tokens ?? 0 }) !== undefined
    const shown = readUsage(usage, this.#shown)
    if (isWhole && isShown(shown, charged)) { this.#shown = shown; return event }
    const whole: Json = { ...usage, ...vendorUsageOf(charged) }
    this.#shown = readUsage(whole, this.#shown)
    return SseEvent.of(event.event, { ...data, usage: whole })
  }
}
