// A gateway with the shipped configuration, for what its public listener shows.
import type { Test } from 'tap'
import { gateway, type TestGateway } from './gateway.ts'
import { textOfPage } from './pages.ts'

/** The shipped configuration, with other options of the public listener. */
export async function shipped (t: Test, options: string): Promise<TestGateway> {
  const text = textOfPage('gateway.yaml')
    .replace(/^ {2}api: .*$/m, '  api: { listen: "127.0.0.1:0", url: "https://api.acme.example" }')
    .replace(/^ {2}public: .*$/m, `  public: { listen: "127.0.0.1:0"${options} }`)
    .replace(/^ {2}admin: .*$/m, '  admin: { listen: "127.0.0.1:0", token: test-admin-token }')
    .replace('driver: embedded', 'driver: memory').replace('config/models.yaml', 'models.yaml')
  return await gateway(t, text, { files: { 'models.yaml': textOfPage('config/models.yaml') } })
}
