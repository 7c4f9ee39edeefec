// What models give: one table, and nothing else. What is sold, asked and repeated otherwise because of it asks here.

export const kinds = ['text', 'image', 'video'] as const
export type ModelKind = typeof kinds[number]

/** What is sold by the piece, and not by tokens. */
export interface Item {
  /** the field of a row of prices, and that of the other items */
  readonly unit: 'usd' | 'usd_per_second'
  readonly otherUnit: 'usd' | 'usd_per_second'
  /** the field in the public list of prices */
  readonly publicUnit: string
  /** what changes a vendor's charge: a model without such a parameter is not sold with it (src/README.md#variants) */
  readonly pricedFields: readonly string[]
  /** for sentences: of the price, what it is for, a sample of a list, and how to pay less */
  readonly each: string
  readonly price: string
  readonly sample: string
  readonly cheaper: string
}

export interface Modality {
  /** for sentences */
  readonly article: string
  /** where it is asked, for sentences */
  readonly addresses: string
  /** in metrics: OpenTelemetry's name, which has none for images and videos */
  readonly operation: string
  /** absent: sold by tokens */
  readonly item?: Item
  /** Its upstream works on it when the request is over, whoever is there to hear of it. */
  readonly isTask?: true
}

export const modalities: Readonly<Record<ModelKind, Modality>> = {
  text: {
    article: 'a text model',
    addresses: 'POST /v1/messages or POST /v1/chat/completions',
    operation: 'chat'
  },
  image: {
    article: 'an image model',
    addresses: 'POST /v1/images/generations, or POST /v1/images/edits to change an image',
    operation: 'image_generation',
    item: {
      unit: 'usd', otherUnit: 'usd_per_second', publicUnit: 'usd_per_image',
      pricedFields: ['resolution', 'size', 'quality', 'tier', 'input_fidelity'],
      each: 'each per image', price: 'US dollars per delivered image', sample: '[{ usd: 0.04 }]',
      cheaper: 'ask for fewer or smaller images'
    }
  },
  video: {
    article: 'a video model',
    addresses: 'POST /v1/videos',
    operation: 'video_generation',
    item: {
      unit: 'usd_per_second', otherUnit: 'usd', publicUnit: 'usd_per_second',
      pricedFields: ['resolution', 'size', 'seconds', 'quality'],
      each: 'each per second', price: 'US dollars per second of video', sample: '[{ usd_per_second: 0.10 }]',
      cheaper: 'ask for a shorter or smaller video'
    },
    isTask: true
  }
}

/** @param kind as it is written; undefined: there is none of this name */
export function modalityOf (kind: unknown): Modality | undefined {
  return kinds.includes(kind as ModelKind) ? modalities[kind as ModelKind] : undefined
}

export function isSoldByTokens (kind: unknown): boolean {
  const modality = modalityOf(kind)
  return modality !== undefined && modality.item === undefined
}

/** Fields of a model in gateway.yaml that say something about text models only. */
export const textFields = ['context', 'max_output', 'default_max_tokens', 'sampling', 'thinking',
  'structured_outputs'] as const
