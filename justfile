# The everyday commands of this repository; `just` lists them. Each recipe is plain commands, which can be typed without just.

_default:
    @just --list --unsorted

# Run the tour: an allowed call, a denied one, questions, broken plugins, and the ledger verified at the end
demo:
    cargo run --release --bin portcullis -- demo

# Check that everything compiles, tests and benchmarks included
check:
    cargo check --workspace --all-targets

# Run the unit tests of the crates, without the suite over the real binary
test-unit *FILTER:
    cargo test --workspace --lib -- {{FILTER}}

# Run all tests that need nothing but this repository; with a name, the tests of the suite that contain it, on a fresh binary
test NAME='':
    {{ if NAME == '' { 'cargo test' } else { 'cargo test --test suite -- ' + NAME } }}

# Check formatting and lints, as CI does
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# Build the documentation of the library; a broken link is an error
docs:
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

# Build the book into docs/book; needs mdbook (`cargo install mdbook`)
book:
    mdbook build docs

# Build the book, show it in a browser, and build it again when a page changes
book-open:
    mdbook serve docs --open

# Write the pages of the book that are made from the code: every key of the configuration, every command
book-reference:
    UPDATE_GOLDEN=1 cargo test --workspace --lib --bins -- made_from

# Record the tour that the README shows
book-demo:
    cargo build --release --bin portcullis
    tests/journeys/play.py --casts target/casts the_tour
    tests/journeys/svg.py target/casts/the_tour.cast docs/src/demo.svg

# Test with real servers behind the broker, driven by the MCP Inspector and by rmcp; needs npm, python3 and git
interop:
    tests/interop/setup.sh
    cargo build --bins --examples --features portcullis-tests/interop
    cargo test --features portcullis-tests/interop --test interop

# Replay AgentDojo's tasks and attacks behind the broker, and write the tables of the book; needs npm and python3
agentdojo:
    tests/interop/setup.sh
    cargo build --bin portcullis
    "${CARGO_TARGET_DIR:-target}/interop/agentdojo/bin/python" -B tests/interop/agentdojo/measure.py \
        --portcullis "${CARGO_TARGET_DIR:-target}/debug/portcullis" --page docs/src/guide/flow-measured.md --write

# Play what a new user does in a terminal, with real servers, and count commands and seconds; needs npx and uvx
journeys *NAMES:
    cargo build --release --bin portcullis
    tests/journeys/play.py {{NAMES}}

# Measure what cell each widely used server needs (tests/servers); needs npx, uvx, git, and the release binary
servers *NAMES:
    tests/servers/measure.py {{NAMES}}

# Run the fuzz targets on their corpus and on random bytes, with stable Rust
fuzz-smoke:
    cargo test --package portcullis-tests --lib fuzz

# Measure the cost of a decision, a record and a whole call
bench:
    cargo bench --package portcullis

# Count the instructions of a message and of the records of a call, and compare them with their budgets; needs valgrind
instructions:
    cargo bench --profile dev --bench instructions

# Build the edge host for this machine as small as it can be, and compare its size with the recorded one
edge:
    cargo build --bin portcullis
    PORTCULLIS=$(realpath "${CARGO_TARGET_DIR:-target}/debug/portcullis") \
        examples/edge-host/compile.sh "${CARGO_TARGET_DIR:-target}/edge/host"
    cargo bench --package portcullis-edge-host --profile edge

# Check which dependencies may be built (deny.toml); needs cargo-deny
deny:
    cargo deny check bans licenses sources

# Make what a release publishes, for both processors, in target/artifacts: programs, packages, images, checksums; and try it
dist *ARGUMENTS:
    host/dist/make --check {{ARGUMENTS}}

# Compare what the library exports with host/api.txt; --write writes that file; needs cargo-public-api
api *ARGUMENTS:
    host/dist/api {{ARGUMENTS}}

# Make the packages of the Rust registry, and build a project outside this repository from them
package *ARGUMENTS:
    host/dist/package {{ARGUMENTS}}

# Make the static program of this machine, and its archive
dist-quick:
    host/dist/make --target "$(uname -m)" binary archive checksums

# List what the static program is made of, by size
dist-sizes:
    host/dist/sizes.py "${CARGO_TARGET_DIR:-target}/$(uname -m)-unknown-linux-musl/dist/portcullis"

# Run everything that CI checks
ci:
    .ci/run
