// What each kind of model needs: who can answer for it, and what only it is told in gateway.yaml.
import type { Dialect, ModelKind } from './config.ts'

/** The dialects in which a kind can be asked for. */
export const dialectsOf: Readonly<Record<ModelKind, readonly Dialect[]>> = {
  text: ['messages', 'chat'],
  image: ['images'],
  video: ['videos']
}

/** Fields of a model in gateway.yaml that say something about text models only. */
export const textFields = ['context', 'max_output', 'default_max_tokens', 'sampling', 'thinking', 'structured_outputs'] as const

/** For sentences. */
export const article: Readonly<Record<ModelKind, string>> = { text: 'a text model', image: 'an image model', video: 'a video model' }
