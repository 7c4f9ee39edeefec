// The table of endpoints, by their names in `serve:`.
import { countInput, countTokens } from './count-tokens.ts'
import { sendFile } from './file.ts'
import { answerImages, prepareImages } from './images.ts'
import { publicMediaInfo } from './media-prices.ts'
import { cancelResponse, deleteResponse, listInputItems, retrieveResponse } from './kept-responses.ts'
import { listModels, retrieveModel } from './models.ts'
import { modelsInfo, publicModelsInfo } from './prices.ts'
import { quote } from './quote.ts'
import { acceptVideo, deleteVideo, listVideos, locateVideo, remixVideo, retrieveVideo } from './videos.ts'
import { commonStyle, styles } from '../protocols/index.ts'
import { messagesStyle } from '../protocols/messages.ts'
import { responsesStyle } from '../protocols/responses.ts'
import type { Endpoint } from '../core/endpoint.ts'

/** The text endpoint of each style. */
const texts = Object.fromEntries(styles.map((style) => {
  const { serve, schema } = style.endpoint
  return [serve, { kind: 'model', style, modality: 'text', ...(schema !== undefined && { schema }) } satisfies Endpoint]
}))

export const endpoints: Readonly<Record<string, Endpoint>> = {
  ...texts,
  'count-tokens': { kind: 'local', style: messagesStyle, reads: 'body', schema: 'count-tokens', answer: countTokens },
  'input-tokens': { kind: 'local', style: responsesStyle, reads: 'body', schema: 'responses', answer: countInput },
  'compact-response': { kind: 'model', style: responsesStyle, modality: 'text', schema: 'responses', compacts: true },
  response: { kind: 'local', answer: retrieveResponse },
  'delete-response': { kind: 'local', answer: deleteResponse },
  'response-input-items': { kind: 'local', answer: listInputItems },
  'cancel-response': { kind: 'local', answer: cancelResponse },
  quote: { kind: 'local', reads: 'json', answer: quote },
  models: { kind: 'local', answer: listModels },
  model: { kind: 'local', answer: retrieveModel },
  'models-info': { kind: 'local', answer: modelsInfo },
  'public-models-info': { kind: 'local', answer: publicModelsInfo },
  'images-generations': { kind: 'model', style: commonStyle, modality: 'image', schema: 'images-generations',
    prepare: prepareImages, deliver: answerImages },
  'images-edits': { kind: 'model', style: commonStyle, modality: 'image', form: true, schema: 'images-edits',
    prepare: prepareImages, deliver: answerImages },
  'public-media-info': { kind: 'local', answer: publicMediaInfo },
  file: { kind: 'local', answer: sendFile },
  'create-video': { kind: 'model', style: commonStyle, modality: 'video', form: true, schema: 'videos',
    accept: acceptVideo },
  videos: { kind: 'local', answer: listVideos },
  video: { kind: 'local', answer: retrieveVideo },
  'delete-video': { kind: 'local', answer: deleteVideo },
  'remix-video': { kind: 'local', answer: remixVideo },
  'video-content': { kind: 'download', locate: locateVideo }
}
