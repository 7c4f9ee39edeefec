// The variant of an image or video model that a request asks for: its parameters, with the model's defaults. It decides
// price and channel.
import type { ModelConfig, ParameterConfig } from '../config/config.ts'
import { modalities } from '../config/sections/modalities.ts'
import { GatewayError } from '../errors.ts'
import type { Body } from '../core/facts.ts'
import { itemPrice, rateOf, type Variant } from '../money/item-price.ts'

export interface Choice {
  readonly variant: Variant
  /** fields of the request that the model does not have, and that are not sent */
  readonly ignored: readonly string[]
}

/**
 * Chooses the variant, and writes it into the body, defaults included: the priced variant is the one that is made.
 * @throws {GatewayError} invalid_request: a value that the model does not have, or that contradicts another
 */
export function chooseVariant (model: ModelConfig, body: Body): Choice {
  const { item } = modalities[model.kind]
  if (item === undefined) return { variant: {}, ignored: [] }
  const parameters = model.parameters ?? {}
  const variant: Record<string, string> = {}
  const ignored: string[] = []
  for (const name of new Set([...Object.keys(parameters), ...item.pricedFields])) {
    const parameter = Object.hasOwn(parameters, name) ? parameters[name] : undefined
    const asked = readValue(name, body, parameter)
    if (asked === undefined) Reflect.deleteProperty(body, name)
    else if (parameter !== undefined) variant[name] = checkValue(name, asked, parameter, model)
    else if (item.habitualFields.has(name)) {
      ignored.push(name)
      Reflect.deleteProperty(body, name)
    } else if (name !== 'size' || parameters['resolution']?.max_pixels === undefined) throw unknownField(name, model)
  }
  const implied = impliedResolution(variant, body, parameters['resolution'])
  if (implied !== undefined) {
    const { resolution } = variant
    // The price must be unambiguous.
    if (resolution !== undefined && resolution !== implied) {
      throw invalid(
        'size',
        `The fields "size" and "resolution" contradict each other: the size ${quote(body['size'])} is made in ` +
        `${implied}, not in ${resolution}. Leave one of them out.`
      )
    }
    variant['resolution'] = implied
  }
  for (const [name, { default: standard }] of Object.entries(parameters)) {
    // With a tier, resolution is not needed.
    if (
      variant[name] !== undefined || standard === undefined || (name === 'resolution' && variant['tier'] !== undefined)
    ) continue
    variant[name] = standard
  }
  Object.assign(body, variant)
  return { variant, ignored }
}

/** Undefined: the model's default, which vendors call "auto". An empty text is no value, and is refused. */
function readValue (name: string, body: Body, parameter: ParameterConfig | undefined): string | undefined {
  const value = Object.hasOwn(body, name) ? body[name] : undefined
  if (value === undefined || value === null) return undefined
  if (value === 'auto' && parameter?.values.includes('auto') !== true) return undefined
  if (typeof value === 'string') return value
  if (typeof value === 'number') return String(value)
  throw invalid(name, `The field "${name}" must be a string.`)
}

function checkValue (name: string, value: string, { values }: ParameterConfig, { id }: ModelConfig): string {
  if (values.includes(value)) return value
  throw invalid(name, `The field "${name}" must be one of ${values.join(', ')} for ${id}, not ${quote(value)}.`)
}

function unknownField (name: string, { id, kind, parameters = {} }: ModelConfig): GatewayError {
  const known = Object.entries(parameters).map(([parameter, { values }]) => `${parameter} (${values.join(', ')})`)
  return invalid(name, name === 'tier'
    ? `${id} has no lightweight mode. Leave out the field "tier".`
    : `${id} is ${modalities[kind].article} that is not sold with the field "${name}". Leave it ` +
      `out${known.length === 0 ? '' : `; it has ${known.join(' and ')}`}.`)
}

/** The smallest resolution that covers the size. */
function impliedResolution (variant: Variant, body: Body, resolution: ParameterConfig | undefined): string | undefined {
  const size = variant['size'] ?? readValue('size', body, undefined)
  if (size === undefined || resolution?.max_pixels === undefined) return undefined
  const [, width, height] = /^([1-9]\d{0,4})x([1-9]\d{0,4})$/.exec(size) ?? []
  if (width === undefined) {
    throw invalid('size', `The field "size" must be WIDTHxHEIGHT in pixels such as 1024x1024, not ${quote(size)}.`)
  }
  const pixels = Number(width) * Number(height)
  const [covering] = Object.entries(resolution.max_pixels)
    .filter(([, most]) => most >= pixels)
    .toSorted(([, a], [, b]) => a - b)
  if (covering === undefined) {
    throw invalid(
      'size',
      `The size ${quote(size)} is larger than this model can make: it has at most ` +
      `${Math.max(...Object.values(resolution.max_pixels))} pixels.`
    )
  }
  return covering[0]
}

/**
 * Refuses a variant without a price in any channel, and names the values that have one, so that the next try fits.
 * @throws {GatewayError} invalid_request
 */
export function checkSold ({ id, channels, parameters = {} }: ModelConfig, variant: Variant): void {
  const prices = Object.values(channels).map((sold) => itemPrice(sold))
  if (prices.some((price) => rateOf(variant, price) !== undefined)) return
  const [name] = Object.keys(parameters).filter((parameter) => variant[parameter] !== undefined)
  const asked = Object.entries(variant).map(([parameter, value]) => `${parameter} ${value}`).join(', ')
  const known = prices.flatMap(({ rows }) => rows.map(({ when }) =>
    when.map(([parameter, value]) => `${parameter} ${value}`).join(' with ')))
  throw invalid(
    name ?? 'model',
    `${id} has no price for ${asked === '' ? 'a request without parameters' : asked}, and is not sold so. There ` +
    `are: ${[...new Set(known)].join('; ')}.`
  )
}

function invalid (param: string, message: string): GatewayError {
  return new GatewayError('invalid_request', { message, param })
}

/** A client's value, for a message: never long. */
function quote (value: unknown): string {
  const text = String(value)
  return JSON.stringify(text.length > 40 ? text.slice(0, 40) + '…' : text)
}
