// Sealed texts: only the gateway reads them, for the purpose and the account that they were made for, and only as it
// made them.
import t from 'tap'
import { isSealed, scratchSeals, sealedBytes, Seals } from '../../src/base/seals.ts'

const SECRETS = ['a', 'b', 'c'].map((letter) => letter.repeat(32)) as [string, string, string]
const VALUES = ['', 'x', 'EqQBCkYIARgC+/==', 'é…𝄞\u0000\n"', 'long '.repeat(50_000)]

void t.test('a value comes back as it was, and is not to be seen in its text', (t) => {
  const seals = scratchSeals()
  for (const value of VALUES) {
    const sealed = seals.seal('thinking', 'acme', value)
    t.equal(seals.open('thinking', 'acme', sealed), value)
    t.match(sealed, /^gwseal1_[\w-]+$/, 'letters, digits, _ and - alone: it fits wherever base64url does')
    t.ok(isSealed(sealed))
    t.equal(sealedBytes(sealed), Buffer.byteLength(value))
    t.equal(sealed.length, 8 + Math.ceil((32 + Buffer.byteLength(value)) * 4 / 3))
    t.notMatch(Buffer.from(sealed.slice(8), 'base64url').toString('latin1'), 'long long')
    t.not(seals.seal('thinking', 'acme', value), sealed, 'the same twice looks like two')
  }
  t.end()
})

void t.test('it opens for no other purpose, no other account, and under no other secret', (t) => {
  const [first, second] = SECRETS
  const seals = new Seals([first])
  const sealed = seals.seal('thinking', 'acme', 'value')
  for (
    const [purpose, account] of [['reasoning', 'acme'], ['thinking', 'beta'], ['thinking', ''], ['', 'acme'],
      ['thinking\nacme', ''], ['thinking', 'acme\n'], ['', 'thinking\nacme']] as const
  ) {
    t.equal(seals.open(purpose, account, sealed), undefined)
  }
  t.equal(new Seals([second]).open('thinking', 'acme', sealed), undefined)
  t.equal(scratchSeals().open('thinking', 'acme', sealed), undefined)
  t.equal(new Seals([first]).open('thinking', 'acme', sealed), 'value', 'the next process with the secret reads it')
  t.end()
})

void t.test('a secret that is replaced opens what it has sealed, for as long as it is there', (t) => {
  const [first, second, third] = SECRETS
  const old = new Seals([first]).seal('thinking', 'acme', 'value')
  const changed = new Seals([second, first])
  t.equal(changed.open('thinking', 'acme', old), 'value')
  const made = changed.seal('thinking', 'acme', 'value')
  t.equal(new Seals([second]).open('thinking', 'acme', made), 'value', 'the first seals')
  t.equal(new Seals([first]).open('thinking', 'acme', made), undefined)
  t.equal(new Seals([third, second, first]).open('thinking', 'acme', old), 'value')
  t.equal(new Seals([third, second]).open('thinking', 'acme', old), undefined)
  t.equal(new Seals([first, first]).open('thinking', 'acme', old), 'value', 'one that is written twice')
  t.end()
})

void t.test('changed by one bit, cut anywhere, or written otherwise, it does not open', (t) => {
  const seals = scratchSeals()
  const value = 'EqQBCkYIARgC'
  const sealed = seals.seal('thinking', 'acme', value)
  const bytes = Buffer.from(sealed)
  let opened = 0
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const changed = Buffer.from(bytes)
    changed[bit >> 3]! ^= 1 << (bit & 7)
    if (seals.open('thinking', 'acme', changed.toString('latin1')) !== undefined) opened++
    if (seals.open('thinking', 'acme', changed.toString('utf8')) !== undefined) opened++
  }
  t.equal(opened, 0)
  for (let end = 0; end < sealed.length; end++) {
    if (seals.open('thinking', 'acme', sealed.slice(0, end)) !== undefined) opened++
    if (seals.open('thinking', 'acme', sealed.slice(0, end) + sealed.slice(end + 1)) !== undefined) opened++
    for (const more of [' ', '=', '\n', '.', 'A', '\u{1d11e}']) {
      if (seals.open('thinking', 'acme', sealed.slice(0, end) + more + sealed.slice(end)) !== undefined) opened++
    }
  }
  for (const other of ['', 'gwseal1_', value, sealed + sealed, ` ${sealed}`, sealed + '=', sealed.toUpperCase()]) {
    if (seals.open('thinking', 'acme', other) !== undefined) opened++
  }
  t.equal(opened, 0)
  t.equal(seals.open('thinking', 'acme', sealed), value)
  t.end()
})

void t.test('more accounts than keys are kept for', (t) => {
  const seals = scratchSeals()
  const sealed = Array.from({ length: 5000 }, (_, i) => seals.seal('thinking', `account-${i}`, `value ${i}`))
  t.equal(sealed.findIndex((text, i) => seals.open('thinking', `account-${i}`, text) !== `value ${i}`), -1)
  t.equal(sealed.findIndex((text, i) => seals.open('thinking', `account-${i + 1}`, text) !== undefined), -1)
  t.end()
})
