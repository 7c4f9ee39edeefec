// The modalities of models, as one table: all differences in how they are sold, called and retried are columns of it.

export const kinds = ['text', 'image', 'video'] as const
export type ModelKind = typeof kinds[number]

/** Modalities that are sold by the piece, and not by tokens. */
export interface Item {
  /** the price field of its rows, and that of the other item */
  readonly unit: 'usd' | 'usd_per_second'
  readonly otherUnit: 'usd' | 'usd_per_second'
  /** its field in the public price list */
  readonly publicUnit: string
  /**
   * fields that change a vendor's charge: a model without such a parameter is not sold with it (src/README.md#variants)
   */
  readonly pricedFields: readonly string[]
  /** those of them that clients send by habit: a model without such a parameter is sold without it */
  readonly habitualFields: ReadonlySet<string>
  /** for messages: the price, what it is for, a sample of a list, and how to pay less */
  readonly each: string
  readonly price: string
  readonly sample: string
  readonly cheaper: string
}

export interface Modality {
  /** for messages */
  readonly article: string
  /** its endpoints, for messages */
  readonly addresses: string
  /** absent: sold by tokens */
  readonly item?: Item
  /** true: the upstream works on it after the request, and whether or not the client is still there */
  readonly isTask?: true
}

export const modalities: Readonly<Record<ModelKind, Modality>> = {
  text: {
    article: 'a text model',
    addresses: 'POST /v1/messages or POST /v1/chat/completions'
  },
  image: {
    article: 'an image model',
    addresses: 'POST /v1/images/generations, or POST /v1/images/edits to change an image',
    item: {
      unit: 'usd', otherUnit: 'usd_per_second', publicUnit: 'usd_per_image',
      pricedFields: ['resolution', 'size', 'quality', 'tier', 'input_fidelity'],
      habitualFields: new Set(['quality', 'input_fidelity']),
      each: 'each per image', price: 'US dollars per delivered image', sample: '[{ usd: 0.04 }]',
      cheaper: 'ask for fewer or smaller images'
    }
  },
  video: {
    article: 'a video model',
    addresses: 'POST /v1/videos',
    item: {
      unit: 'usd_per_second', otherUnit: 'usd', publicUnit: 'usd_per_second',
      pricedFields: ['resolution', 'size', 'seconds', 'quality'],
      habitualFields: new Set(['quality']),
      each: 'each per second', price: 'US dollars per second of video', sample: '[{ usd_per_second: 0.10 }]',
      cheaper: 'ask for a shorter or smaller video'
    },
    isTask: true
  }
}

/** @param kind as written in gateway.yaml; undefined: unknown */
export function modalityOf (kind: unknown): Modality | undefined {
  return kinds.includes(kind as ModelKind) ? modalities[kind as ModelKind] : undefined
}

export function isSoldByTokens (kind: unknown): boolean {
  const modality = modalityOf(kind)
  return modality !== undefined && modality.item === undefined
}

/** Fields of a model in gateway.yaml that only text models have. */
export const textFields = ['context', 'max_output', 'over_max_output', 'default_max_tokens', 'sampling',
  'thinking', 'structured_outputs', 'mid_system'] as const
