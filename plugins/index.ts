// The shipped plugins, in the shipped order: the top is nearest the client, the bottom nearest the upstream.
import type { Plugin } from '../src/plugin.ts'
import { auth } from './auth.ts'
import { billingMeter } from './billing-meter.ts'
import { channelRouter } from './channel-router.ts'
import { errorNormalize } from './error-normalize.ts'

export const plugins: readonly Plugin[] = [auth, channelRouter, billingMeter, errorNormalize]
