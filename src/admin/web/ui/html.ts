// Templates: htm's tags, bound to preact.
import htm from 'htm'
import { h, type VNode } from 'preact'

export const html = htm.bind(h) as (strings: TemplateStringsArray, ...values: readonly unknown[]) => VNode

/** What stands between two tags. */
export type Children = VNode | string | number | null | undefined | false | readonly Children[]
