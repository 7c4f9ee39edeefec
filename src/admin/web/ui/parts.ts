// What the pages are made of: heads, tables, fields, dialogs, and the words for what is missing, waited for or wrong.
import { signal } from '@preact/signals'
import { useEffect, useId, useRef } from 'preact/hooks'
import type { VNode } from 'preact'
import { ApiError } from './api.ts'
import { type Children, html } from './html.ts'

/** What a screen reader says next, and sighted people read for a moment. */
export const said = signal('')

export function say (text: string): void {
  said.value = text
  setTimeout(() => { if (said.value === text) said.value = '' }, 6000)
}

export function Page ({ title, actions, children }: {
  readonly title: string, readonly actions?: Children, readonly children?: Children
}): VNode {
  const head = useRef<HTMLHeadingElement>(null)
  useEffect(() => {
    document.title = `${title} · Gateway`
    head.current?.focus()
  }, [title])
  return html`<div class="head"><h1 tabindex="-1" ref=${head}>${title}</h1><div class="actions">${actions}</div></div>
    ${children}`
}

export function Waiting ({ what }: { readonly what: string }): VNode {
  return html`<p class="quiet" role="status">Reading ${what} …</p>`
}

/** An error in its own words. */
export function Problem ({ error, again }: {
  readonly error: Error | undefined, readonly again?: () => void
}): VNode | null {
  if (error === undefined) return null
  const id = error instanceof ApiError ? error.requestId : null
  const text = error.message.replace(/ Request ID: \S+$/, '')
  return html`<div class="problem" role="alert"><p>${text}</p>
    ${id !== null && html`<p class="quiet">Request <code>${id}</code></p>`}
    ${again !== undefined && html`<p><button type="button" onClick=${again}>Read again</button></p>`}</div>`
}

export function Empty ({ title, children }: { readonly title: string, readonly children?: Children }): VNode {
  return html`<div class="empty"><h2>${title}</h2><p>${children}</p></div>`
}

export interface Column<T> {
  readonly name: string
  readonly isNumber?: boolean
  readonly show: (row: T) => Children
}

interface TableProps<T> {
  readonly caption: string
  readonly columns: readonly Column<T>[]
  readonly rows: readonly T[]
  readonly keyOf: (row: T) => string
  readonly more?: (() => void) | undefined
}

export function Table<T> ({ caption, columns, rows, keyOf, more }: TableProps<T>): VNode {
  return html`<div class="scroll" role="region" aria-label=${caption} tabindex="0"><table>
    <caption class="unseen">${caption}</caption>
    <thead><tr>${columns.map(({ name, isNumber }) => html`<th scope="col" class=${isNumber && 'number'}>${name}</th>`)}
    </tr></thead>
    <tbody>${rows.map((row) => html`<tr key=${keyOf(row)}>${columns.map(({ isNumber, show }, i) => i === 0
      ? html`<th scope="row">${show(row)}</th>` : html`<td class=${isNumber && 'number'}>${show(row)}</td>`)}</tr>`)}
    </tbody></table></div>
    ${more !== undefined && html`<p><button type="button" onClick=${more}>Show more</button></p>`}`
}

/** @param is a class of the style sheet @param words of the state; absent: its name */
export function State ({ is, words = is }: { readonly is: string, readonly words?: string }): VNode {
  return html`<span class="state ${is}">${words.replaceAll('_', ' ')}</span>`
}

/** A time of the reader's clock; its title is UTC, as in logs. */
export function Time ({ at }: { readonly at: string | null | undefined }): VNode | null {
  if (at === null || at === undefined) return null
  return html`<time datetime=${at} title=${at}>${new Date(at).toLocaleString(undefined,
    { dateStyle: 'medium', timeStyle: 'medium' })}</time>`
}

interface FieldProps {
  readonly label: string
  readonly hint?: string | undefined
  readonly mistake?: string | undefined
  /** given the attributes that tie the input to its words */
  readonly children: (attributes: Readonly<Record<string, unknown>>) => VNode
}

export function Field ({ label, hint, mistake, children }: FieldProps): VNode {
  const id = useId()
  const described = [hint !== undefined && `${id}-hint`, mistake !== undefined && `${id}-wrong`].filter(Boolean).join(' ')
  return html`<div class="field"><label for=${id}>${label}</label>
    ${children({ id, ...(described !== '' && { 'aria-describedby': described }),
      ...(mistake !== undefined && { 'aria-invalid': 'true' }) })}
    ${hint !== undefined && html`<p class="hint" id="${id}-hint">${hint}</p>`}
    ${mistake !== undefined && html`<p class="wrong" id="${id}-wrong">${mistake}</p>`}</div>`
}

/** Keeps the focus inside, and closes with Escape, as browsers do it. */
export function Dialog ({ title, onClose, children }: {
  readonly title: string, readonly onClose: () => void, readonly children: Children
}): VNode {
  const element = useRef<HTMLDialogElement>(null)
  const id = useId()
  useEffect(() => {
    element.current!.showModal()
    return () => { element.current?.close() }
  }, [])
  return html`<dialog ref=${element} aria-labelledby=${id} onCancel=${(event: Event) => {
    event.preventDefault()
    onClose()
  }}><h2 id=${id}>${title}</h2>${children}</dialog>`
}

/** The text of an input that sent an event. */
export function textOf (event: Event): string {
  return (event.currentTarget as HTMLInputElement).value
}

export function Pairs ({ of }: { readonly of: readonly (readonly [name: string, value: Children])[] }): VNode {
  return html`<dl>${of.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`
}

export function copy (text: string): void {
  navigator.clipboard.writeText(text).then(() => { say('Copied.') },
    () => { say('The browser did not let it be copied: select the text.') })
}

/** Gives a file to the reader. */
export function download (name: string, type: string, text: string): void {
  const link = document.createElement('a')
  link.href = URL.createObjectURL(new Blob([text], { type }))
  link.download = name
  link.click()
  URL.revokeObjectURL(link.href)
}
