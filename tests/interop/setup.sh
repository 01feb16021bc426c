#!/usr/bin/env bash
# Installs the real servers and clients that `tests/interop` uses, into target/interop and nowhere else:
#   target/interop/node     npm packages, with a Node.js of their own (the Inspector needs version 22)
#   target/interop/python   a virtual environment
#   target/interop/old      another one, for the one server that needs the older version of the protocol's library
#   target/interop/sdk      another one, with the official Python SDK and its server for the conformance suite
#   target/interop/agentdojo another one, with AgentDojo's suites
#   target/interop/examples the components of examples/tool-in-javascript and -python
#   target/interop/text.wasm  a component in JavaScript with functions of its own
#   target/interop/debian   Debian's docker-registry, unpacked and not installed; left out if there is no apt-get
# Needs npm (any version that understands the lock file) and python3 with venv. Does nothing when nothing has changed.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
into=${CARGO_TARGET_DIR:-$root/target}/interop
wanted=$(cat "$here/package.json" "$here/package-lock.json" "$here/"requirements*.txt "${BASH_SOURCE[0]}" \
    "$root/examples/tool-in-javascript/"*.js* "$root/examples/tool-in-python/"*.py "$root/wit/"*.wit "$here/text/"* | sha256sum)

if [[ -f $into/installed && $(<"$into/installed") == "$wanted" ]]; then
    echo "interop: servers are installed in $into"
    exit 0
fi

rm -rf "$into"
mkdir -p "$into/node"

echo "interop: npm packages"
cp "$here/package.json" "$here/package-lock.json" "$into/node/"
(cd "$into/node" && npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier)

echo "interop: python packages"
venv() {
    python3 -m venv "$into/$1"
    "$into/$1/bin/pip" install --quiet --disable-pip-version-check -r "$here/$2" "${@:3}"
}
venv python requirements.txt
venv old requirements-old.txt
venv sdk requirements-sdk.txt
# Without its dependencies, which are the clients of all model providers; the list names those that a replay needs.
venv agentdojo requirements-agentdojo.txt --no-deps
# The SDK's server for the conformance suite is only in the SDK's source package, not in a wheel.
"$into/sdk/bin/pip" download --quiet --disable-pip-version-check --no-deps --no-binary mcp \
    --dest "$into/sdk" -r "$here/requirements-sdk.txt"
tar --extract --file "$into/sdk/"mcp-*.tar.gz --directory "$into/sdk" --strip-components 1 --wildcards '*/examples/servers/everything-server'
"$into/sdk/bin/pip" install --quiet --disable-pip-version-check "$into/sdk/examples/servers/everything-server"

echo "interop: the tools of examples in JavaScript and Python, as their READMEs say"
mkdir "$into/examples"
cp -r "$root/examples/tool-in-javascript" "$root/examples/tool-in-python" "$into/examples/"
ln -s "$root/wit" "$into/wit"
(cd "$into/examples/tool-in-javascript" &&
    npm ci --ignore-scripts --no-audit --no-fund --no-update-notifier && npm run --silent build)
"$into/examples/tool-in-javascript/node_modules/.bin/componentize-qjs" --js "$here/text/text.js" --wit "$here/text" \
    --sync --stub-wasi --opt-size --output "$into/text.wasm"
(cd "$into/examples/tool-in-python" &&
    "$into/python/bin/componentize-py" -d ../../wit -w tools-plugin componentize words -o words.wasm --stub-wasi)

if [[ ! -x /usr/bin/docker-registry ]]; then
    echo "interop: docker-registry"
    mkdir -p "$into/debian"
    (cd "$into/debian" && apt-get download docker-registry && dpkg --extract docker-registry_*.deb . && rm docker-registry_*.deb) ||
        echo "interop: docker-registry is not available: oci:// is NOT tested against a real registry" >&2
fi

echo "$wanted" >"$into/installed"
echo "interop: installed in $into"
