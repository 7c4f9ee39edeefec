// Which files are changed, and which tests have to notice: those of their room, the quickest first.

export interface Room {
  readonly name: string
  /** paths from the package's folder, as globs */
  readonly files: readonly string[]
  /** test files, the quickest first */
  readonly tests: readonly string[]
}

const STORE = ['books', 'store', 'windows', 'store-tasks', 'store-embedded', 'store-embedded-periods',
  'store-embedded-faults', 'rollups', 'store-kept', 'store-responses', 'backup-files', 'data-folder', 'store-move',
  'store-embedded-kill']
const REDIS = ['store-redis', 'store-redis-arithmetic', 'store-redis-leases', 'store-redis-late', 'outbox',
  'store-redis-records', 'store-redis-kept', 'store-redis-responses', 'store-redis-rollups',
  'store-redis-backup', 'store-redis-faults', 'store-redis-start', 'store-redis-parallel', 'store-redis-cluster', 'store-move']
const METER = ['billing-meter', 'billing-holds', 'billing', 'schema-validate', 'billing-late', 'truth-table', 'videos',
  'tokens', 'images']

export const rooms: readonly Room[] = [
  { name: 'money', files: ['src/money/*.ts'],
    tests: ['item-price', 'goods', 'money', 'period', 'price-in-force', ...METER] },
  { name: 'billing-meter', files: ['plugins/billing-meter/*.ts'], tests: METER },
  { name: 'store', files: ['src/store/*.ts', 'src/store/{local,embedded,memory}/*.ts'], tests: STORE },
  { name: 'redis', files: ['src/store/redis/*.ts'], tests: REDIS },
  { name: 'lua', files: ['src/store/redis/lua/*.ts'], tests: REDIS }
]
