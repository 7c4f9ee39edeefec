// schema-validate: refuses what the contract or every vendor refuses, before anything is held or sent, and says where and why.
// Sees the body in the client's own style. Unknown fields pass: vendors add to them, and clients use them before we know them.
import type { Config } from '../src/config/config.ts'
import { Model } from '../src/facts.ts'
import { definePlugin } from '../src/plugin.ts'
import { checkImageRequest } from './schema-validate/images.ts'
import { checkImages, checkLength, checkOutput } from './schema-validate/limits.ts'
import { checkRequest, compileRequests } from './schema-validate/requests.ts'
import { checkVideoRequest } from './schema-validate/videos.ts'

export const schemaValidate = definePlugin<Record<never, never>>({
  name: 'schema-validate',
  reads: [Model],
  create (_options, config) {
    const requests = compileRequests()
    const warmable = modelsThatWarmUp(config)
    return {
      onRequest (exchange) {
        const { route: { endpoint, style }, received: { headers } } = exchange
        if (endpoint.kind === 'forward' || endpoint.kind === 'download' || endpoint.schema === undefined) return
        const { schema } = endpoint
        const { body } = exchange.request
        const model = exchange.get(Model)
        const request = checkRequest(requests[schema], body)
        if (schema === 'images-generations' || schema === 'images-edits') {
          checkImageRequest(schema, body, model)
          return
        }
        if (schema === 'videos') {
          checkVideoRequest(body, model)
          return
        }
        checkImages(request, model)
        if (schema === 'count-tokens') return
        checkOutput(request, style, model, headers, warmable.has(model.id))
        checkLength(request, model, headers)
        // protocol.md K 2.2d: we take one text as well, the vendor takes a list only. In place, as with nulls: nothing is copied.
        if (schema === 'messages' && typeof request.stop_sequences === 'string') Object.assign(body, { stop_sequences: [request.stop_sequences] })
      }
    }
  }
})

/** `max_tokens: 0` only warms up a cache, and only messages-style vendors know it (protocol.md K 8.3): all that may answer must. */
function modelsThatWarmUp ({ models, upstreams }: Config): ReadonlySet<string> {
  return new Set(models
    .filter(({ channels }) => Object.values(channels).every(({ targets }) => targets.every(({ upstream }) => upstreams[upstream]?.dialect === 'messages')))
    .map(({ id }) => id))
}
