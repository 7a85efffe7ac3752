#!/usr/bin/env bash
# Engine, cutting, worker and a daemon that serves, on aarch64 under user-mode emulation: see docs/processors.md.
# Takes root, qemu-aarch64-static and debootstrap. A root file system and wheels are kept in .aarch64.
set -euo pipefail
cd "$(dirname "$0")/../.."
repo=$PWD kept=$PWD/.aarch64 python=$PWD/.venv/bin/python
root=$kept/root

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }

[ "$(id -u)" = 0 ] || { echo "make test-aarch64: expected root, which mounts and changes the root folder"; exit 2; }
for program in qemu-aarch64-static debootstrap; do
    command -v "$program" > /dev/null || { echo "make test-aarch64: expected $program (apt-get install qemu-user-static debootstrap)"; exit 2; }
done
mkdir -p "$kept"

binfmt=/proc/sys/fs/binfmt_misc
[ -e $binfmt/register ] || mount -t binfmt_misc binfmt_misc $binfmt
if [ ! -e $binfmt/qemu-aarch64 ]; then
    say "registering the emulator with the kernel"
    magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
    mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
    echo ":qemu-aarch64:M::$magic:$mask:$(command -v qemu-aarch64-static):F" > $binfmt/register
fi

if [ ! -e "$root/.ready" ]; then
    say "making a root file system"
    rm -rf "$root"
    debootstrap --arch=arm64 --variant=minbase --include=python3 bookworm "$root" > "$kept/debootstrap.log" \
        || { tail -n 3 "$kept/debootstrap.log"; exit 1; }
    touch "$root/.ready"
fi
if [ ! "$kept/wheels" -nt pyproject.toml ]; then
    say "fetching wheels"
    rm -rf "$kept/wheels"
    "$python" tests/aarch64/requirements.py > "$kept/requirements.txt"
    "$python" -m pip install --quiet --disable-pip-version-check --target "$kept/wheels" --only-binary=:all: \
        --platform manylinux_2_28_aarch64 --platform manylinux_2_27_aarch64 --platform manylinux_2_17_aarch64 \
        --platform manylinux2014_aarch64 --python-version 3.11 --implementation cp --abi cp311 --abi abi3 --abi none \
        --requirement "$kept/requirements.txt"
    touch "$kept/wheels"
fi

say "answers of this processor"
rm -rf "$kept/served"
mkdir -p "$kept/served" "$kept/cache"
"$python" tests/aarch64/served.py "$kept/served"

# The engine ends itself where /proc/cpuinfo has not aarch64's form.
{
    for core in $(seq 0 $(($(nproc) - 1))); do
        printf 'processor\t: %s\nBogoMIPS\t: 108.00\nFeatures\t: fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid\n' "$core"
        printf 'CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd08\nCPU revision\t: 3\n\n'
    done
} > "$kept/cpuinfo"

# Mounts are this namespace's own, and go with it.
inside() {
    unshare --mount --propagation private bash -c '
        set -e
        root=$1 kept=$2 repo=$3; shift 3
        mkdir -p "$root/repo" "$root/wheels" "$root/kept"
        for folder in proc sys dev; do mount --rbind "/$folder" "$root/$folder"; done
        mount --bind "$kept/cpuinfo" "$root/proc/cpuinfo"
        mount --bind "$repo" "$root/repo"
        mount --bind "$kept/wheels" "$root/wheels"
        mount --bind "$kept" "$root/kept"
        exec chroot "$root" env -i PATH=/usr/bin:/bin HOME=/root LANG=C.UTF-8 QEMU_CPU=cortex-a72 \
            XDG_CACHE_HOME=/kept/cache PYTHONPATH=/repo:/wheels PYTHONDONTWRITEBYTECODE=1 \
            sh -c "cd /repo && exec \"\$@\"" sh "$@"
    ' inside "$root" "$kept" "$repo" "$@"
}

say "a daemon that serves SqueezeNet there"
inside python3 tests/aarch64/served.py /kept/served
say "tests of engine, cutting and worker there"
inside python3 -m pytest -p no:cacheprovider -q -m "not long" --timeout 0 --durations=5 ${AARCH64_TESTS:-\
    tests/machine tests/measure/test_compile.py tests/stages/test_input_formats.py tests/stages/test_segments.py \
    tests/stages/test_placed_worker.py}
say "done"
