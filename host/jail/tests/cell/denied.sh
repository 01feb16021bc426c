#!/bin/sh
# A launcher for which user namespaces are exhausted: it runs in one that allows no other. `jail`, in the same folder,
# is the real launcher that this becomes.
jail=$(/usr/bin/dirname "$0")/jail
exec /usr/bin/unshare -Ur /bin/sh -c 'echo 1 > /proc/sys/user/max_user_namespaces && exec "$0" "$@"' \
    /usr/bin/unshare -U --map-user=1000 --map-group=1000 "$jail" "$@"
