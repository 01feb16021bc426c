# What a person does with this repository; `just` lists it. Every recipe is the plain commands, to be typed without just too.

_default:
    @just --list --unsorted

# The tour: an allowed call, a denied one, questions, broken plugins, and the ledger verified at the end
demo:
    cargo run --release --bin portcullis -- demo

# Whether everything compiles, tests and benchmarks included
check:
    cargo check --workspace --all-targets

# The tests of the crates alone, without the suite over the real binary
test-unit *FILTER:
    cargo test --workspace --lib -- {{FILTER}}

# All tests that need nothing but this repository; with a name, those of the suite that contain it, over a fresh binary
test NAME='':
    {{ if NAME == '' { 'cargo test' } else { 'cargo test --test suite -- ' + NAME } }}

# Formatting and lints, as CI sees them
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets --all-features -- -D warnings

# The documentation of the library, without a broken link
docs:
    RUSTDOCFLAGS='-D warnings' cargo doc --workspace --no-deps

# Real servers behind the broker, driven by the MCP Inspector and by rmcp; needs npm, python3 and git
interop:
    tests/interop/setup.sh
    cargo build --bins --examples --features portcullis-tests/interop
    cargo test --features portcullis-tests/interop --test interop

# The fuzzers' own functions on their corpus and on random bytes, with stable Rust
fuzz-smoke:
    cargo test --package portcullis-tests --lib fuzz

# What a decision, a record and a whole call cost
bench:
    cargo bench --package portcullis

# What may come into the build (deny.toml); needs cargo-deny
deny:
    cargo deny check bans licenses sources

# Everything that CI checks
ci:
    .ci/run
