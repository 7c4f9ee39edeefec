// The endpoints that `serve:` can name, with their default routes. Names only, because a configuration is checked
// without their code, which is in endpoints/index.ts under the same names. A plugin that translates a style of clients
// adds one.
import type { PluginDescriptor, Role } from '../plugin-descriptor.ts'

/** Properties of an endpoint that the check of a route needs. */
export interface EndpointName {
  /** role without which it is not served; a plugin of the pipeline must provide it */
  readonly needs?: Role
}

const names = {
  messages: {},
  'chat-completions': { needs: 'chat-completions' },
  'count-tokens': {},
  'input-tokens': {},
  'compact-response': {},
  response: {},
  'delete-response': {},
  'response-input-items': {},
  'cancel-response': {},
  quote: {},
  models: {},
  model: {},
  'models-info': {},
  'public-models-info': {},
  'images-generations': {},
  'images-edits': {},
  'public-media-info': {},
  file: {},
  docs: {},
  openapi: {},
  'create-video': { needs: 'billing' },
  videos: {},
  video: {},
  'delete-video': {},
  'remix-video': {},
  'video-content': {}
} as const satisfies Readonly<Record<string, EndpointName>>

/** @param plugins all plugins, named in gateway.yaml or not */
export function endpointsWith (plugins: Iterable<PluginDescriptor>): Readonly<Record<string, EndpointName>> {
  return { ...names, ...Object.fromEntries(translated(plugins).map(({ serve }) => [serve, {}])) }
}

/** A route that exists without gateway.yaml. */
export interface ShippedRoute {
  readonly match: string
  readonly serve: string
}

/** After the routes of the configuration. */
export function shippedRoutesWith (plugins: Iterable<PluginDescriptor>): readonly ShippedRoute[] {
  return [...shippedRoutes, ...translated(plugins)]
}

function translated (plugins: Iterable<PluginDescriptor>): ShippedRoute[] {
  return [...plugins].flatMap(({ translates }) => translates === undefined ? [] : [translates.endpoint])
}

/** The routes that exist without gateway.yaml, but for those of translators. */
const shippedRoutes: readonly ShippedRoute[] = [
  { match: 'POST /v1/messages', serve: 'messages' },
  { match: 'POST /v1/messages/count_tokens', serve: 'count-tokens' },
  { match: 'POST /v1/chat/completions', serve: 'chat-completions' },
  { match: 'POST /v1/responses/input_tokens', serve: 'input-tokens' },
  { match: 'POST /v1/responses/compact', serve: 'compact-response' },
  { match: 'GET /v1/responses/{id}', serve: 'response' },
  { match: 'DELETE /v1/responses/{id}', serve: 'delete-response' },
  { match: 'GET /v1/responses/{id}/input_items', serve: 'response-input-items' },
  { match: 'POST /v1/responses/{id}/cancel', serve: 'cancel-response' },
  { match: 'POST /v1/quote', serve: 'quote' },
  { match: 'GET /v1/models', serve: 'models' },
  { match: 'GET /v1/models/info', serve: 'models-info' },
  { match: 'GET /v1/models/{id}', serve: 'model' },
  { match: 'POST /v1/images/generations', serve: 'images-generations' },
  { match: 'POST /v1/images/edits', serve: 'images-edits' },
  { match: 'POST /v1/videos', serve: 'create-video' },
  { match: 'GET /v1/videos', serve: 'videos' },
  { match: 'GET /v1/videos/{id}', serve: 'video' },
  { match: 'DELETE /v1/videos/{id}', serve: 'delete-video' },
  { match: 'GET /v1/videos/{id}/content', serve: 'video-content' },
  { match: 'POST /v1/videos/{id}/remix', serve: 'remix-video' }
]
