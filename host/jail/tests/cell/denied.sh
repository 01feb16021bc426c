#!/bin/sh
# A launcher where one user namespace is the last that is possible, and this is in it. `jail`, beside the name that this is
# called by, becomes it.
jail=$(/usr/bin/dirname "$0")/jail
exec /usr/bin/unshare -Ur /bin/sh -c 'echo 1 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"' \
    /usr/bin/unshare -U --map-user=1000 --map-group=1000 "$jail" "$@"
