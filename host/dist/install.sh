#!/bin/sh
# Installs Portcullis for the user who runs it: fetches the program for this machine, verifies its SHA-256 checksum, and
# puts it into ~/.local/bin. Needs no root, and changes nothing else.
#
#   sh install.sh [--base ADDRESS] [--to DIR]
#   sh install.sh --uninstall [--to DIR]
#
# ADDRESS, or the variable PORTCULLIS_BASE, is where the files of a release are: SHA256SUMS beside the archives. It begins
# with https://, or is a folder of this machine; http:// is for this machine alone.

# The shell reads a block to its end before it runs any of it, so a script that was cut off while it came does nothing.
{
set -eu

name=portcullis

say() { printf '%s\n' "$*"; }
fail() { printf '%s: %s\n' "install.sh" "$*" >&2; exit 1; }
has() { command -v "$1" >/dev/null 2>&1; }

usage() {
    say "Usage: sh install.sh [--base ADDRESS] [--to DIR]    installs $name into DIR [default: ~/.local/bin]"
    say "       sh install.sh --uninstall [--to DIR]        removes it"
    say "ADDRESS is where the files of a release are; it can be given as PORTCULLIS_BASE too."
}

# Prints the target that the program was built for, as the archives name it.
target() {
    [ "$(uname -s)" = Linux ] ||
        fail "there is no program for $(uname -s), only for Linux; build it there with \`cargo build --release --bin $name\`"
    case $(uname -m) in
        x86_64 | amd64) say x86_64-unknown-linux-musl ;;
        aarch64 | arm64) say aarch64-unknown-linux-musl ;;
        *) fail "there is no program for the processor $(uname -m), only for x86_64 and aarch64; build it with \`cargo build --release --bin $name\`" ;;
    esac
}

# Refuses an address over which anybody on the way could replace both the archive and its checksum.
check_base() {
    case $1 in
        '') fail "where are the files of the release? Give their address with --base ADDRESS or in PORTCULLIS_BASE" ;;
        https://*) ;;
        http://*@*) fail "$1 names a user, which is not needed here; use an address without \`@\`" ;;
        http://127.0.0.1:* | http://127.0.0.1/* | 'http://[::1]:'* | http://localhost:* | http://localhost/*) ;;
        *://*) fail "$1 is not protected on its way here; use an address that begins with https://" ;;
        *) [ -d "$1" ] || fail "$1 is neither an address that begins with https:// nor a folder" ;;
    esac
}

# Fetches a file of the release into a file.
fetch() {
    case $base in
        *://*) ;;
        *)
            cp "$base/$1" "$2" || fail "$base/$1 cannot be read"
            return
            ;;
    esac
    # No other program: wget would follow a redirection that leaves https.
    has curl || fail "curl is not there to fetch the program; install it"
    protocol=${base%%://*}
    curl --fail --silent --show-error --location --proto "=$protocol" --proto-redir "=$protocol" \
        --output "$2" "$base/$1" || fail "$base/$1 did not come completely; nothing was installed"
}

# Prints the SHA-256 checksum of a file.
sha256() {
    if has sha256sum; then
        sum=$(sha256sum <"$1") || return 1
    else
        sum=$(shasum -a 256 <"$1") || return 1
    fi
    say "${sum%% *}"
}

# Compares an archive with the line of SHA256SUMS that names it.
verify() {
    wanted=$(awk -v file="$1" '$2 == file || $2 == "*" file { print $1 }' "$temporary/SHA256SUMS")
    case $wanted in
        '') fail "SHA256SUMS of $base has no checksum of $1, so it cannot be verified; nothing was installed" ;;
        *[!0-9a-f]*) fail "SHA256SUMS of $base does not have exactly one checksum of $1; nothing was installed" ;;
    esac
    [ ${#wanted} -eq 64 ] || fail "SHA256SUMS of $base was cut off at the checksum of $1; nothing was installed"
    found=$(sha256 "$temporary/$1") || fail "the checksum of $1 cannot be computed; nothing was installed"
    [ "$found" = "$wanted" ] ||
        fail "$1 of $base is damaged or was replaced: its SHA-256 checksum is $found and should be $wanted; nothing was installed"
}

install_program() {
    check_base "$base"
    has sha256sum || has shasum ||
        fail "neither sha256sum nor shasum is there, so what comes cannot be verified; install coreutils or perl"
    has tar || fail "tar is not there to unpack the program; install it"
    stem=$name-$(target) || exit 1
    temporary=$(mktemp -d) || fail "there is no folder for temporary files"
    trap 'rm -rf "$temporary"' EXIT
    trap 'exit 1' HUP INT TERM

    say "fetching $stem from $base"
    fetch SHA256SUMS "$temporary/SHA256SUMS"
    # A third smaller, for machines that can unpack it.
    if has xz && grep -q "[ *]$stem.tar.xz\$" "$temporary/SHA256SUMS"; then
        archive=$stem.tar.xz unpack=-xJf
    else
        archive=$stem.tar.gz unpack=-xzf
    fi
    fetch "$archive" "$temporary/$archive"
    verify "$archive"
    tar "$unpack" "$temporary/$archive" -C "$temporary" "$name" || fail "$archive cannot be unpacked; nothing was installed"
    version=$("$temporary/$name" --version) ||
        fail "the program does not run on this machine, or nothing runs in ${temporary%/*} (noexec): try it with TMPDIR=DIR, a folder of yours; nothing was installed"

    mkdir -p "$to" || fail "$to cannot be created; name another folder with --to DIR"
    [ ! -d "$to/$name" ] || fail "$to/$name is a folder; name another place with --to DIR"
    # Replaced in one step: a broker that runs goes on with the program that it started with.
    new=$to/.$name.$$
    trap 'rm -rf "$temporary" "$new"' EXIT
    { cp "$temporary/$name" "$new" && chmod 755 "$new" && mv -f "$new" "$to/$name"; } ||
        fail "$to cannot be written; name another folder with --to DIR"

    say "installed $version as $to/$name; its checksum was verified"
    case :$PATH: in
        *:"$to":*) say "next: $name demo" ;;
        *)
            say "$to is not on your PATH; add this line to the profile of your shell:  export PATH=\"$to:\$PATH\""
            say "next: $to/$name demo"
            ;;
    esac
}

uninstall_program() {
    [ -e "$to/$name" ] || fail "$to/$name is not there; name the folder with --to DIR"
    case $("$to/$name" --version 2>/dev/null || true) in
        "$name "*) ;;
        *) fail "$to/$name does not say that it is $name, so it stays" ;;
    esac
    rm -f "$to/$name" || fail "$to/$name cannot be removed"
    say "removed $to/$name"
    say "what you configured and recorded stays: ~/.config/$name, ~/.local/state/$name, ~/.local/share/$name, and .$name beside each configuration"
}

main() {
    base=${PORTCULLIS_BASE:-}
    to=
    uninstall=false
    while [ $# -gt 0 ]; do
        case $1 in
            --base | --to)
                [ $# -gt 1 ] || fail "$1 needs a value"
                if [ "$1" = --base ]; then base=$2; else to=$2; fi
                shift
                ;;
            --uninstall) uninstall=true ;;
            -h | --help)
                usage
                return
                ;;
            *)
                usage >&2
                fail "$1 is not an option"
                ;;
        esac
        shift
    done
    base=${base%/}
    if [ -z "$to" ]; then
        [ -n "${HOME:-}" ] || fail "there is no home folder; name a folder with --to DIR"
        to=$HOME/.local/bin
    fi
    case $to in
        /*) ;;
        *) to=$PWD/$to ;;
    esac
    if $uninstall; then uninstall_program; else install_program; fi
}

main "$@"
exit
}
