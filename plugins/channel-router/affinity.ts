// The order of targets for one conversation: the same for each of its requests, in every process, after every restart.
// Weighted rendezvous hashing: each target draws a number for the conversation, and the highest is first. A target that
// leaves moves only its own conversations, and a new one takes its share of each other target's; all other
// conversations stay, and no state is kept.
import { shortHash } from '../../src/core/conversation.ts'
import type { TargetConfig } from '../../src/config/config.ts'

/** @param conversation 32 bits (src/core/conversation.ts) */
export function byAffinity (targets: readonly TargetConfig[], conversation: number): readonly TargetConfig[] {
  return targets.map((target) => ({ target, score: scoreOf(target, conversation) })).sort((a, b) => b.score - a.score)
    .map(({ target }) => target)
}

/** A weight of 0 gives 0: behind all others, in the order of the file. */
function scoreOf (target: TargetConfig, conversation: number): number {
  const drawn = (mix(conversation ^ seedOf(target)) + 0.5) / 2 ** 32            // between 0 and 1, both excluded
  return target.weight / -Math.log(drawn)
}

/** Computed once per target; weak, so that the targets of retired configurations are freed. */
const seeds = new WeakMap<TargetConfig, number>()

/** From the target's names, not from its place: a line above it in the file moves no conversation. */
function seedOf (target: TargetConfig): number {
  let seed = seeds.get(target)
  if (seed === undefined) seeds.set(target, seed = shortHash(`${target.upstream}\n${target.model}`))
  return seed
}

/** The finalizer of MurmurHash3: each bit of the result depends on all bits of the input. */
function mix (value: number): number {
  value = Math.imul(value ^ value >>> 16, 0x85ebca6b)
  value = Math.imul(value ^ value >>> 13, 0xc2b2ae35)
  return (value ^ value >>> 16) >>> 0
}
