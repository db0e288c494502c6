#!/bin/sh
# Run nats-server with the services' password and the exporters' keys, and reload it when they change.
set -eu
umask 077
run=${NATS_RUN_DIR:-/tmp}

users() {
    password=$(cat "$NATS_PASSWORD_FILE")
    if [ -s "$NATS_USERS" ]; then
        text=$(cat "$NATS_USERS")
    else
        text='users: [{ user: topolog, password: $TOPOLOG_PASSWORD_TEXT }]'
    fi
    printf '%s\n' "$text" | sed "s|\$TOPOLOG_PASSWORD_TEXT|\"$password\"|"
}

users > "$run/users.conf"
nats-server -c "${NATS_CONFIG:-/etc/nats/nats.conf}" &
server=$!
trap 'kill -TERM "$server"' TERM INT
while kill -0 "$server" 2> /dev/null; do
    sleep 1 &
    wait $! || true
    users > "$run/users.new"
    if ! cmp -s "$run/users.new" "$run/users.conf"; then
        mv "$run/users.new" "$run/users.conf"
        kill -HUP "$server" || true
    fi
done
wait "$server"
