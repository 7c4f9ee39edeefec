// What a page shows is read when it opens, again when it is told to, and where it is live, again and again.
import { useEffect, useState } from 'preact/hooks'
import { ApiError, read, type Rows } from './api.ts'

export interface Data<T> {
  /** undefined: not read yet, or it failed */
  readonly value: T | undefined
  readonly error: Error | undefined
  readonly isReading: boolean
  readonly again: () => void
}

/**
 * @param path of a GET; another one begins anew. undefined: there is nothing to read
 * @param everyMs reads again after so long, as long as the page is seen
 */
export function useData<T> (path: string | undefined, everyMs?: number): Data<T> {
  const [state, setState] = useState<{ readonly path?: string, readonly value?: T, readonly error?: Error }>({})
  const [round, setRound] = useState(0)
  const [isReading, setReading] = useState(true)
  useEffect(() => {
    if (path === undefined) return
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    const load = async (isBackground: boolean): Promise<void> => {
      setReading(true)
      try {
        const value = await read<T>(path, { isBackground, signal: abort.signal })
        setState({ path, value })
      } catch (thrown) {
        if (abort.signal.aborted) return
        setState((before) => ({ ...(before.path === path && before), path, error: thrown as Error }))
      }
      setReading(false)
      if (everyMs !== undefined) timer = setTimeout(() => { void turn() }, everyMs)
    }
    const turn = async (): Promise<void> => {
      if (!document.hidden) return await load(true)
      timer = setTimeout(() => { void turn() }, everyMs)
    }
    void load(false)
    return () => { abort.abort(); clearTimeout(timer) }
  }, [path, round, everyMs])
  const isMine = state.path === path
  return { value: isMine ? state.value : undefined, error: isMine ? state.error : undefined,
    isReading: isReading || !isMine, again: () => { setRound(round + 1) } }
}

export interface List<T> extends Omit<Data<readonly T[]>, 'value'> {
  /** undefined: not read yet */
  readonly rows: readonly T[] | undefined
  /** undefined: there are no more */
  readonly more: (() => void) | undefined
}

/**
 * A list, of which the reader asks for one page after the other.
 * @param path with a query or without one
 * @param everyMs begins again with the first page after so long, as long as the page is seen
 */
export function useList<T> (path: string, everyMs?: number): List<T> {
  const first = useData<Rows<T>>(path, everyMs)
  interface Rest { readonly of?: Rows<T>, readonly pages: readonly Rows<T>[], readonly error?: Error }
  const [rest, setRest] = useState<Rest>({ pages: [] })
  const pages = first.value === undefined ? [] : [first.value, ...(rest.of === first.value ? rest.pages : [])]
  const next = pages.at(-1)?.next ?? null
  const more = async (): Promise<void> => {
    const { value } = first
    const before = rest.of === value ? rest.pages : []
    try {
      const page = await read<Rows<T>>(`${path}${path.includes('?') ? '&' : '?'}after=${encodeURIComponent(next!)}`)
      setRest({ of: value!, pages: [...before, page] })
    } catch (thrown) {
      setRest({ of: value!, pages: before, error: thrown as Error })
    }
  }
  return { rows: first.value === undefined ? undefined : pages.flatMap(({ data }) => data),
    error: first.error ?? rest.error, isReading: first.isReading, again: first.again,
    more: next === null ? undefined : () => { void more() } }
}

/** Runs what a button does, one at a time. */
export function useAction (): {
  readonly isRunning: boolean
  readonly error: Error | undefined
  readonly run: (what: () => Promise<void>) => void
} {
  const [isRunning, setRunning] = useState(false)
  const [error, setError] = useState<Error>()
  return {
    isRunning,
    error,
    run (what) {
      if (isRunning) return
      setRunning(true)
      setError(undefined)
      what().catch((thrown: unknown) => { setError(thrown as Error) }).finally(() => { setRunning(false) })
    }
  }
}

/** The sentence about one field, of the mistakes that the API found. */
export function mistakeAt (error: Error | undefined, name: string): string | undefined {
  if (!(error instanceof ApiError)) return undefined
  const found = error.mistakes.find(({ path }) => path === `/${name}` || path.startsWith(`/${name}/`))
  return found && `${found.message}${found.hint === undefined ? '' : ` (${found.hint})`}`
}
