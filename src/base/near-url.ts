// Where a listener is found from its own machine.

/** @param listen "host:port", as it listens: one that listens on all addresses is asked on the loopback */
export function nearUrl (listen: string): string {
  const [, host, port] = /^(.*):(\d+)$/.exec(listen)!
  return `http://${host === '0.0.0.0' ? '127.0.0.1' : host === '[::]' ? '[::1]' : host}:${port}`
}
