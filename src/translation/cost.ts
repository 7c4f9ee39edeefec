// The cost of an answer in its `usage`, where clients of OpenRouter look for it.

/** @param charged decimal US dollars; anything else: it is not known */
export function costOf (charged: unknown): { readonly cost?: number } {
  return typeof charged === 'string' && charged !== '' ? { cost: Number(charged) } : {}
}
