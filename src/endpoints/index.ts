// The table of endpoints, by their names in `serve:`.
import { countInput, countTokens } from './count-tokens.ts'
import { sendDocs } from './docs.ts'
import { sendFile } from './file.ts'
import { answerImages, prepareImages } from './images.ts'
import { publicMediaInfo } from './media-prices.ts'
import { sendOpenApi } from './openapi.ts'
import { cancelResponse, deleteResponse, listInputItems, retrieveResponse } from './kept-responses.ts'
import { listModels, retrieveModel } from './models.ts'
import { modelsInfo, publicModelsInfo } from './prices.ts'
import { quote } from './quote.ts'
import { acceptVideo, deleteVideo, listVideos, locateVideo, remixVideo, retrieveVideo } from './videos.ts'
import { commonStyle, styles } from '../protocols/index.ts'
import { messagesStyle } from '../protocols/messages.ts'
import { responsesStyle } from '../protocols/responses.ts'
import type { Endpoint } from '../core/endpoint.ts'

const SUMMARIES: Readonly<Record<string, string>> = {
  messages: 'Create a message',
  'chat-completions': 'Create a chat completion',
  responses: 'Create a response'
}

/** The text endpoint of each style. */
const texts = Object.fromEntries(styles.map((style) => {
  const { serve, schema } = style.endpoint
  return [serve, { kind: 'model', style, modality: 'text',
    ...(SUMMARIES[serve] !== undefined && { summary: SUMMARIES[serve] }),
    ...(schema !== undefined && { schema }) } satisfies Endpoint]
}))

export const endpoints: Readonly<Record<string, Endpoint>> = {
  ...texts,
  'count-tokens': { kind: 'local', summary: 'Count the tokens of a message', style: messagesStyle, reads: 'body',
    schema: 'count-tokens', answer: countTokens },
  'input-tokens': { kind: 'local', summary: 'Count the input tokens of a response', style: responsesStyle,
    reads: 'body', schema: 'responses', answer: countInput },
  'compact-response': { kind: 'model', summary: 'Compact a conversation', style: responsesStyle, modality: 'text',
    schema: 'responses', compacts: true },
  response: { kind: 'local', summary: 'Get a stored response', answer: retrieveResponse },
  'delete-response': { kind: 'local', summary: 'Delete a stored response', answer: deleteResponse },
  'response-input-items': { kind: 'local', summary: 'List the input items of a stored response',
    answer: listInputItems },
  'cancel-response': { kind: 'local', summary: 'Cancel a response', answer: cancelResponse },
  quote: { kind: 'local', summary: 'Get the highest cost of a request', reads: 'json', answer: quote },
  models: { kind: 'local', summary: 'List the models of the key', answer: listModels },
  model: { kind: 'local', summary: 'Get a model', answer: retrieveModel },
  'models-info': { kind: 'local', summary: 'List the prices of the key\'s text models', answer: modelsInfo },
  'public-models-info': { kind: 'local', summary: 'List the public prices of text models', answer: publicModelsInfo },
  'images-generations': { kind: 'model', summary: 'Create images', style: commonStyle, modality: 'image',
    schema: 'images-generations',
    prepare: prepareImages, deliver: answerImages },
  'images-edits': { kind: 'model', summary: 'Edit images', style: commonStyle, modality: 'image', form: true,
    schema: 'images-edits',
    prepare: prepareImages, deliver: answerImages },
  'public-media-info': { kind: 'local', summary: 'List the public prices of images and videos',
    answer: publicMediaInfo },
  docs: { kind: 'local', summary: 'Read the pages for developers', type: 'text/html', answer: sendDocs },
  openapi: { kind: 'local', summary: 'Get this document', answer: sendOpenApi },
  file: { kind: 'local', type: 'image/*', summary: 'Download an image by its link', answer: sendFile },
  'create-video': { kind: 'model', summary: 'Create a video', style: commonStyle, modality: 'video', form: true,
    schema: 'videos',
    accept: acceptVideo },
  videos: { kind: 'local', summary: 'List videos', answer: listVideos },
  video: { kind: 'local', summary: 'Get a video', answer: retrieveVideo },
  'delete-video': { kind: 'local', summary: 'Delete a video', answer: deleteVideo },
  'remix-video': { kind: 'local', summary: 'Remix a video', answer: remixVideo },
  'video-content': { kind: 'download', summary: 'Download a video', locate: locateVideo }
}
