// The order of targets for one conversation: the same for each of its requests, in every process, after every restart.
// Weighted rendezvous hashing: each target draws a number for the conversation, and the highest is first. A target that
// leaves takes only its own conversations with it, and one that comes takes its share from each of the others; nobody
// else moves, and nothing has to be remembered.
import { hash } from 'node:crypto'
import type { TargetConfig } from '../../src/config/config.ts'

/** @param conversation 32 bits (conversation.ts) */
export function byAffinity (targets: readonly TargetConfig[], conversation: number): readonly TargetConfig[] {
  return targets.map((target) => ({ target, score: scoreOf(target, conversation) })).sort((a, b) => b.score - a.score)
    .map(({ target }) => target)
}

/** A weight of 0 gives 0: behind all others, in the order of the file. */
function scoreOf (target: TargetConfig, conversation: number): number {
  const drawn = (mix(conversation ^ seedOf(target)) + 0.5) / 2 ** 32            // between 0 and 1, neither of them
  return target.weight / -Math.log(drawn)
}

/** By the target itself, so that a configuration is a new list of the same objects. */
const seeds = new WeakMap<TargetConfig, number>()

/** Of its names, not of its place: a line that is put above it moves nobody. */
function seedOf (target: TargetConfig): number {
  let seed = seeds.get(target)
  if (seed === undefined) seeds.set(target, seed = shortHash(`${target.upstream}\n${target.model}`))
  return seed
}

/** 32 bits of a text, of which none can be told from the others. */
export function shortHash (text: string): number {
  return hash('sha256', text, 'buffer').readUInt32BE()
}

/** The finalizer of MurmurHash3: each bit of the result hangs on all bits of what it is given. */
function mix (value: number): number {
  value = Math.imul(value ^ value >>> 16, 0x85ebca6b)
  value = Math.imul(value ^ value >>> 13, 0xc2b2ae35)
  return (value ^ value >>> 16) >>> 0
}
