// What an answer needs to know of its request, for where the request's body is not.
import type { Exchange } from '../../core/exchange.ts'
import { writesLong } from './cache-marks.ts'
import { EarlierCalls, earlierIds } from './call-ids.ts'
import { clientProperties } from './messages/property-names.ts'
import { shortNames } from './tool-names.ts'

export function earlierCalls (exchange: Exchange): EarlierCalls {
  return exchange.find(EarlierCalls) ?? { ids: earlierIds(exchange), names: shortNames(exchange.request.body),
    properties: clientProperties(exchange), writesLong: writesLong(exchange) }
}
