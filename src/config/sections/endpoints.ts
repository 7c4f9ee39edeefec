// What `serve:` can name, and where it is served if gateway.yaml says nothing else. Names only, for a configuration is
// checked without the code that answers: that is in endpoints/index.ts, which has one for each name. A plugin that
// translates a style of clients brings the name of one more.
import type { PluginDescriptor, Role } from '../plugin-descriptor.ts'

/** What the check of a route asks of an endpoint. */
export interface EndpointName {
  /** what it is not served without, if no plugin of the pipeline provides it */
  readonly needs?: Role
}

const names = {
  messages: {},
  'chat-completions': { needs: 'chat-completions' },
  'count-tokens': {},
  quote: {},
  models: {},
  model: {},
  'models-info': {},
  'public-models-info': {},
  'images-generations': {},
  'images-edits': {},
  'public-media-info': {},
  file: {},
  'create-video': { needs: 'billing' },
  videos: {},
  video: {},
  'delete-video': {},
  'remix-video': {},
  'video-content': {}
} as const satisfies Readonly<Record<string, EndpointName>>

/** @param plugins all that there are, named in gateway.yaml or not */
export function endpointsWith (plugins: Iterable<PluginDescriptor>): Readonly<Record<string, EndpointName>> {
  return { ...names, ...Object.fromEntries(translated(plugins).map(({ serve }) => [serve, {}])) }
}

/** A route that is there without gateway.yaml. */
export interface ShippedRoute {
  readonly match: string
  readonly serve: string
}

/** Below the routes of the configuration. */
export function shippedRoutesWith (plugins: Iterable<PluginDescriptor>): readonly ShippedRoute[] {
  return [...shippedRoutes, ...translated(plugins)]
}

function translated (plugins: Iterable<PluginDescriptor>): ShippedRoute[] {
  return [...plugins].flatMap(({ translates }) => translates === undefined ? [] : [translates.endpoint])
}

/** The paths of the spec. */
const shippedRoutes: readonly ShippedRoute[] = [
  { match: 'POST /v1/messages', serve: 'messages' },
  { match: 'POST /v1/messages/count_tokens', serve: 'count-tokens' },
  { match: 'POST /v1/chat/completions', serve: 'chat-completions' },
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
