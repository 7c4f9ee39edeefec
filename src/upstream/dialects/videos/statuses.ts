// The words with which vendors say how far a task is, in one table.
import type { VideoStatus } from '../../../core/task-report.ts'

/**
 * Without case, punctuation and digits. A cancellation or an expiry is a failure, because no client asks for one.
 * Sources, 2026: the vendors' references, the adapters of Vercel's AI SDK (packages/*-video-model.ts) and of new-api.
 */
const WORDS: Readonly<Record<VideoStatus, string>> = {
  queued: 'queued queueing queuing inqueue pending submitted created accepted waiting scheduled notstarted starting ' +
    'initialized initializing initialising preparing prepared throttled delayed received new',
  in_progress: 'inprogress progress progressing processing processed running generating started rendering working ' +
    'active dreaming executing uploading downloading encoding transcoding postprocessing upscaling ongoing ' +
    'cancelling canceling retrying',
  completed: 'completed complete completion succeeded succeed success successful successfully done finished finish ' +
    'ready generated available',
  failed: 'failed failure fail error errored cancelled canceled cancel aborted abort expired rejected refused timeout ' +
    'timedout terminated stopped killed deleted invalid blocked moderated filtered contentmoderated requestmoderated ' +
    'contentfiltered contentfilter contentpolicyviolation contentblocked nsfw'
}

const STATUSES: ReadonlyMap<string, VideoStatus> = new Map(
  (Object.keys(WORDS) as VideoStatus[]).flatMap((status) => WORDS[status].split(' ').map((word) => [word, status]))
)

/** Longer texts are no word. */
const MOST_CHARACTERS = 100
/** What enumerations put in front, such as TASK_STATUS_SUCCEED and JOB_STATE_FAILED. */
const PREFIX = /^(?:task|job|video|generation|status|state)+/

/** Undefined: an unknown word. */
export function statusOf (word: string): VideoStatus | undefined {
  if (word.length > MOST_CHARACTERS) return undefined
  const letters = lettersOf(word)
  return STATUSES.get(letters) ?? STATUSES.get(letters.replace(PREFIX, ''))
}

/** Names of fields and words are compared by their letters: `task_status`, `taskStatus` and `TaskStatus` are one. */
export function lettersOf (text: string): string {
  return text.toLowerCase().replace(/[^a-z]+/g, '')
}

/** Whether a word may also say that a request was accepted, as in `{"status": "success", "data": {"task_id": …}}`. */
export function isAcknowledgement (word: string): boolean {
  return /^(?:success|ok)$/.test(lettersOf(word))
}
