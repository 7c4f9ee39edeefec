// The order of targets of one tier: by weight, and away from busy ones. Of two drawn targets the less loaded one is
// taken: nearly as good as the least loaded of all, and no herd runs to a target that was idle a moment ago
// (Mitzenmacher, "The Power of Two Choices").
import type { TargetConfig } from '../../src/config/config.ts'

/**
 * Each place is drawn among the targets that are left, so that the load of a failed one spreads by the weights. Without
 * load, and wherever loads are proportional to the weights, the shares are exactly those of the weights.
 * @param loadOf running attempts at a target
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
    // All targets that are left have weight 0, and are tried in the order of the file.
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

/** @returns undefined: without `other`, all targets have weight 0 */
function draw (targets: readonly TargetConfig[], random: () => number, other?: TargetConfig): TargetConfig | undefined {
  let sum = 0
  for (const target of targets) if (target !== other) sum += target.weight
  if (sum === 0) return undefined
  let point = random() * sum
  return targets.find((target) => target !== other && (point -= target.weight) < 0)
}
