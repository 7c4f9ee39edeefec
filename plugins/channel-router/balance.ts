// The order of equals: by weight, and away from where much runs already. Of two that are drawn the less loaded one is
// taken: nearly as good as the least loaded of all, and no herd runs to a target that was idle a moment ago
// (Mitzenmacher, "The Power of Two Choices").
import type { TargetConfig } from '../../src/config/config.ts'

/**
 * Each place is drawn among those that are left: when the first fails, its load spreads as the weights say. While
 * nothing runs, and wherever loads are as the weights say, the shares are exactly those of the weights.
 * @param loadOf what runs there
 * @param random from 0 to below 1
 */
export function balance (
  targets: readonly TargetConfig[],
  loadOf: (target: TargetConfig) => number,
  random: () => number
): readonly TargetConfig[] {
  const left = [...targets]
  const order: TargetConfig[] = []
  while (left.length > 1) {
    const first = draw(left, random)
    // All that is left weighs nothing, and is tried in the order of the file.
    if (first === undefined) break
    const second = draw(left, random, first)
    const isBetter = second !== undefined && loadOf(second) * first.weight < loadOf(first) * second.weight
    const taken = isBetter ? second : first
    order.push(taken)
    left.splice(left.indexOf(taken), 1)
  }
  order.push(...left)
  return order
}

/** @returns undefined: what is there, but for `other`, weighs nothing */
function draw (targets: readonly TargetConfig[], random: () => number, other?: TargetConfig): TargetConfig | undefined {
  let sum = 0
  for (const target of targets) if (target !== other) sum += target.weight
  if (sum === 0) return undefined
  let point = random() * sum
  return targets.find((target) => target !== other && (point -= target.weight) < 0)
}
