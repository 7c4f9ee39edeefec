#!/bin/bash
# The health check of the image. The gateway writes the address of its admin listener to GATEWAY_ADDRESS_FILE. Bash opens
# the connection itself: a new Node for each check would cost more than the gateway at rest.
set -euo pipefail
IFS= read -r address < "$GATEWAY_ADDRESS_FILE"
port=${address##*:}
host=${address#*://}
host=${host%:*}
host=${host#[}
host=${host%]}
exec 3<> "/dev/tcp/$host/$port"
printf 'GET /healthz HTTP/1.1\r\nhost: %s\r\nconnection: close\r\n\r\n' "${address#*://}" >&3
IFS= read -r status <&3
[[ $status == 'HTTP/1.1 200 '* ]]
