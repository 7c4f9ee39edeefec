// schema-validate: refuses what the contract or every vendor refuses, before anything is held or sent, and says where
// and why. Sees the body in the client's own style. Unknown fields pass: vendors add to them, and clients use them
// before we know them.
import type { Config } from '../../src/config/config.ts'
import { dialectNamed } from '../../src/config/sections/dialects.ts'
import { Model } from '../../src/core/facts.ts'
import { definePlugin } from '../../src/core/plugin.ts'
import { checkImageRequest } from './images.ts'
import { checkImages, checkLength, checkOutput } from './limits.ts'
import { checkRequest, compileRequests } from './requests.ts'
import { checkVideoRequest } from './videos.ts'

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
        const request = checkRequest(requests.get(schema)!, body)
        if (model.kind === 'image') { checkImageRequest(schema, body, model); return }
        if (model.kind === 'video') { checkVideoRequest(body, model); return }
        checkImages(request, model)
        if (endpoint.kind !== 'model') return
        checkOutput(request, style, model, headers, warmable.has(model.id))
        checkLength(request, model, headers)
        style.mend?.(body)
      }
    }
  }
})

/** `max_tokens: 0` only warms up a cache, and only messages-style vendors know it: all that may answer must. */
function modelsThatWarmUp ({ models, upstreams }: Config): ReadonlySet<string> {
  return new Set(models
    .filter(({ channels }) =>
      Object.values(channels).every(({ targets }) =>
        targets.every(({ upstream }) => dialectNamed(upstreams[upstream]?.dialect)?.warmsUp === true)
      )
    )
    .map(({ id }) => id))
}
