// What the gateway's addresses answer with, by the name that `serve:` gives it: one table, and nothing else.
import { countTokens } from './endpoints/count-tokens.ts'
import { sendFile } from './endpoints/file.ts'
import { publicMediaInfo } from './endpoints/media-prices.ts'
import { listModels, retrieveModel } from './endpoints/models.ts'
import { modelsInfo, publicModelsInfo } from './endpoints/prices.ts'
import { quote } from './endpoints/quote.ts'
import { acceptVideo, deleteVideo, listVideos, locateVideo, remixVideo, retrieveVideo } from './endpoints/videos.ts'
import type { Endpoint } from './routes.ts'

export const endpoints = {
  messages: { kind: 'model', style: 'messages', schema: 'messages' },
  'chat-completions': { kind: 'model', style: 'chat', schema: 'chat-completions', needs: 'chat-to-messages' },
  'count-tokens': { kind: 'local', style: 'messages', reads: 'body', schema: 'count-tokens', answer: countTokens },
  quote: { kind: 'local', reads: 'json', answer: quote },
  models: { kind: 'local', answer: listModels },
  model: { kind: 'local', answer: retrieveModel },
  'models-info': { kind: 'local', answer: modelsInfo },
  'public-models-info': { kind: 'local', answer: publicModelsInfo },
  'images-generations': { kind: 'model', style: 'chat', gives: 'image', schema: 'images-generations' },
  'images-edits': { kind: 'model', style: 'chat', gives: 'image', form: true, schema: 'images-edits' },
  'public-media-info': { kind: 'local', answer: publicMediaInfo },
  file: { kind: 'local', answer: sendFile },
  'create-video': { kind: 'model', style: 'chat', gives: 'video', form: true, needs: 'billing-meter', schema: 'videos', accept: acceptVideo },
  videos: { kind: 'local', answer: listVideos },
  video: { kind: 'local', answer: retrieveVideo },
  'delete-video': { kind: 'local', answer: deleteVideo },
  'remix-video': { kind: 'local', answer: remixVideo },
  'video-content': { kind: 'download', locate: locateVideo }
} as const satisfies Readonly<Record<string, Endpoint>>
