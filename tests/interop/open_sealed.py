"""Opens sealed bodies with other software, by docs/src/ledger-format.md alone.

    open_sealed.py keygen IDENTITY-FILE             prints the recipient
    open_sealed.py open DATA-FOLDER IDENTITY-FILE   reads records as JSON lines, and prints the bodies of intents
"""

import base64
import json
import pathlib
import sys

import pyrage
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

command, *paths = sys.argv[1:]
if command == "keygen":
    identity = pyrage.x25519.Identity.generate()
    pathlib.Path(paths[0]).write_text(f"{identity}\n")
    print(identity.to_public())
else:
    data = pathlib.Path(paths[0])
    identity = pyrage.x25519.Identity.from_str(pathlib.Path(paths[1]).read_text().strip())
    for line in sys.stdin:
        record = json.loads(line)
        payload = record["body"]["arguments"]
        name, sealed = payload["sealed"].split(":")
        key = pyrage.decrypt((data / "keys" / f"{record['chain']}-{name}.age").read_bytes(), [identity])
        content = base64.b32decode(sealed + "=" * (-len(sealed) % 8))
        print(ChaCha20Poly1305(key).decrypt(content[:12], content[12:], payload["hash"].encode()).decode())
