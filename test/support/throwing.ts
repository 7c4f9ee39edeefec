// A user's plugin with a defect in every hook: which one breaks, the request says.

/** A plugin that throws where the header x-throw says: `NAME HOOK` or `NAME HOOK COUNT`. */
export const throwing = (name: string): string => `
const check = (exchange, hook, count) => {
  if (exchange.received.headers['x-throw'] === ['${name}', hook, count].filter((word) => word !== undefined).join(' ')) throw new Error('a defect of the test\\'s own')
}
export default {
  name: '${name}',
  create: () => ({
    onHead (exchange) { check(exchange, 'onHead') },
    onRequest (exchange) { check(exchange, 'onRequest') },
    perAttempt (attempt, exchange) {
      let count = 0
      check(exchange, 'perAttempt')
      return {
        onUpstreamRequest () { check(exchange, 'onUpstreamRequest') },
        onUpstreamReply () { check(exchange, 'onUpstreamReply') },
        onUpstreamEvent () { check(exchange, 'onUpstreamEvent', ++count) }
      }
    },
    onReply (reply, exchange) { check(exchange, 'onReply') },
    onStream (exchange) {
      let count = 0
      check(exchange, 'onStream')
      return { event (event) { check(exchange, 'event', ++count); return event }, end () { check(exchange, 'end'); return [] } }
    },
    onError (error, exchange) { check(exchange, 'onError') },
    onUpstreamFailure (failure, exchange) { check(exchange, 'onUpstreamFailure') }
  })
}
`
