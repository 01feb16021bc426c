# Has another process change the bytes of a path, and the links on the way, while calls use them.
import ctypes, mmap, os, sys

libc = ctypes.CDLL(None, use_errno=True)
tries = int(sys.argv[1])
RENAMEAT2 = {'x86_64': 316, 'aarch64': 276}[os.uname().machine]

with open('/tmp/shared', 'w+b') as file:
    file.truncate(4096)
    shared = mmap.mmap(file.fileno(), 4096)
address = ctypes.addressof(ctypes.c_char.from_buffer(shared))
os.mkdir('other')
os.symlink('other', 'way')
os.symlink('.kept', 'byway')
os.symlink('free', 'end')
os.symlink('kept.toml', 'wrong-end')
# A call in the private folder is passed back to the kernel.
private, granted = b'/home/source/kept.toml\0', os.getcwd().encode() + b'/kept.toml\0'


def flip():
    while shared[64] == 0:
        shared[0:10] = b'kept.toml\0'
        shared[0:10] = b'harm.less\0'
        shared[32:36] = b'kept'
        shared[32:36] = b'free'
        shared[128:128 + len(private)] = private
        shared[128:128 + len(granted)] = granted
        libc.syscall(RENAMEAT2, -100, b'way', -100, b'byway', 2)
        libc.syscall(RENAMEAT2, -100, b'end', -100, b'wrong-end', 2)
        libc.symlink(b'kept.toml', b'late')
        libc.unlink(b'late')
    os._exit(0)


shared[0:10] = b'harm.less\0'
shared[31:37] = b'.free\0'
flipping = os.fork()
if flipping == 0:
    flip()
made = refused = 0


def made_one(result):
    global made, refused
    if result >= 0:
        made += 1
    elif ctypes.get_errno() in (1, 13):
        refused += 1
    return result >= 0


for _ in range(tries):
    number = libc.open(ctypes.c_void_p(address), os.O_CREAT | os.O_WRONLY, 0o600)
    if made_one(number):
        os.close(number)
    libc.unlink(b'harm.less')
    if made_one(libc.mkdir(ctypes.c_void_p(address + 31), 0o700)):
        libc.rmdir(b'.free')
    if made_one(libc.symlink(b'x', ctypes.c_void_p(address))):
        libc.unlink(b'harm.less')
    number = libc.open(b'way/in', os.O_CREAT | os.O_WRONLY, 0o600)
    if made_one(number):
        os.close(number)
    libc.unlink(b'other/in')
    number = libc.open(b'end', os.O_CREAT | os.O_WRONLY, 0o600)
    if made_one(number):
        os.close(number)
    libc.unlink(b'free')
    number = libc.open(ctypes.c_void_p(address + 128), os.O_CREAT | os.O_WRONLY, 0o600)
    if made_one(number):
        os.close(number)
    number = libc.open(b'late', os.O_CREAT | os.O_WRONLY, 0o600)
    if made_one(number):
        os.close(number)
        libc.unlink(b'late')
    libc.rename(b'other', ctypes.c_void_p(address + 128))
    if os.path.lexists('kept.toml') or not os.path.lexists('other') or os.listdir('.kept'):
        print('PLANTED')
shared[64] = 1
os.waitpid(flipping, 0)
print('made', made, 'refused', refused)
