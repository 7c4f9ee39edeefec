// node src/config/write-schema.ts PLUGINS OUT: writes the schema that editors read. Prints nothing when all is well.
import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { argv } from 'node:process'
import { pathToFileURL } from 'node:url'
import type { Plugin } from '../plugin.ts'
import { editorSchema } from './schema.ts'

const [plugins, out] = argv.slice(2)
if (plugins === undefined || out === undefined) throw new Error('usage: write-schema.ts PLUGINS OUT')
// src never imports plugins: their place is an argument
const shipped = await import(pathToFileURL(resolve(plugins)).href) as { readonly plugins: readonly Plugin[] }
writeFileSync(out, JSON.stringify(editorSchema(shipped.plugins), null, 2) + '\n')
