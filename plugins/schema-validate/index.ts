// schema-validate: refuses requests that the contract or every vendor refuses, before any hold or attempt, with the
// path and the reason. Checks the body in the client's own style. Unknown fields pass: vendors add fields, and clients
// use them before the gateway knows them.
import type { Config } from '../../src/config/config.ts'
import { dialectNamed } from '../../src/config/sections/dialects.ts'
import { bodyStep } from '../../src/core/body-step.ts'
import { Model } from '../../src/core/facts.ts'
import { definePlugin } from '../../src/core/plugin.ts'
import { styleOfBody } from '../../src/protocols/index.ts'
import { checkImageRequest } from './images.ts'
import { checkImages, checkLength, checkOutput } from './limits.ts'
import { checkRequest, compileRequests } from './requests.ts'
import { checkVideoRequest } from './videos.ts'

export const schemaValidate = definePlugin<Record<never, never>>({
  name: 'schema-validate',
  readsInSteps: true,
  reads: [Model],
  create (_options, config) {
    compileRequests()
    const warmable = modelsThatWarmUp(config)
    return {
      onRequest (exchange) {
        const { endpoint } = exchange.route
        if (endpoint.kind === 'forward' || endpoint.kind === 'download' || endpoint.schema === undefined) return
        return check(exchange, endpoint.schema, warmable.has(exchange.get(Model).id))
      }
    }
  }
})

/** @param canWarmUp whether every target of the model knows `max_tokens: 0` */
const check = bodyStep('schema-validate', (exchange, usual: string, canWarmUp: boolean) => {
  const { route: { endpoint } } = exchange
  const { body } = exchange.request
  const style = styleOfBody(exchange.route, body)
  const schema = style === exchange.route.style ? usual : style.endpoint.schema!
  const model = exchange.get(Model)
  const request = checkRequest(compileRequests().get(schema)!, body)
  if (model.kind === 'image') { checkImageRequest(schema, body, model, exchange.blobs); return }
  if (model.kind === 'video') { checkVideoRequest(body, model, exchange.blobs); return }
  checkImages(request, style, model)
  if (endpoint.kind !== 'model') return
  checkOutput(request, style, exchange, model, canWarmUp)
  checkLength(request, style, model, exchange)
  style.mend?.(body)
})

/**
 * Models for which `max_tokens: 0` is allowed: it only warms up a cache, and only messages-style vendors know it, so
 * every target must be one.
 */
function modelsThatWarmUp ({ models, upstreams }: Config): ReadonlySet<string> {
  return new Set(models
    .filter(({ channels }) =>
      Object.values(channels).every(({ targets }) =>
        targets.every(({ upstream }) => dialectNamed(upstreams[upstream]?.dialect)?.warmsUp === true)
      )
    )
    .map(({ id }) => id))
}
