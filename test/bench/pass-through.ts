// Contender: bare http-proxy-3, a keep-alive agent and nothing else. Arguments: our port, the upstream's port.
import { Agent, createServer } from 'node:http'
import { createProxyServer } from 'http-proxy-3'

const [port, upstreamPort] = process.argv.slice(2).map(Number)
const proxy = createProxyServer({ target: `http://127.0.0.1:${upstreamPort}`, agent: new Agent({ keepAlive: true }) })
proxy.on('error', (_error, _req, res) => { res.destroy() })
const server = createServer((req, res) => { proxy.web(req, res) })
server.keepAliveTimeout = 60_000
server.listen(port, '127.0.0.1', 4096)
process.on('SIGTERM', () => process.exit(0))
