// node src/tools/write-schema.ts PLUGINS SCHEMA PAGE: writes the schema that editors read, and the page of every name
// of gateway.yaml. Prints nothing when all is well.
import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { argv } from 'node:process'
import { pathToFileURL } from 'node:url'
import type { Plugin } from '../core/plugin.ts'
import { configReference, schemaText } from './config-reference.ts'

const [plugins, schema, page] = argv.slice(2)
if (plugins === undefined || schema === undefined || page === undefined) {
  throw new Error('usage: write-schema.ts PLUGINS SCHEMA PAGE')
}
// src never imports plugins: their place is an argument
const shipped = await import(pathToFileURL(resolve(plugins)).href) as { readonly plugins: readonly Plugin[] }
writeFileSync(schema, schemaText(shipped.plugins))
writeFileSync(page, configReference(shipped.plugins))
