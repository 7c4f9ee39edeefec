// The shipped plugins, in the shipped order: the top is nearest the client, the bottom nearest the upstream.
import type { Plugin } from '../src/plugin.ts'
import { auth } from './auth.ts'
import { billingMeter } from './billing-meter.ts'
import { channelRouter } from './channel-router.ts'
import { chatToMessages } from './chat-to-messages.ts'
import { errorNormalize } from './error-normalize.ts'
import { keyPolicy } from './key-policy.ts'
import { rateLimit } from './rate-limit.ts'
import { schemaValidate } from './schema-validate.ts'

export const plugins: readonly Plugin[] = [auth, keyPolicy, rateLimit, schemaValidate, chatToMessages, channelRouter, billingMeter, errorNormalize]
