# long: Debian packages are built, lintian finds nothing, and what is in them works.
# limit: 1200
. "$(dirname "$0")/common.bash"
not_simulated
for program in dpkg-buildpackage dh lintian dh_python3; do
    command -v $program >/dev/null || skip "no $program (dpkg-dev, debhelper, lintian, dh-python)"
done
missing=$(cd "$root" && dpkg-checkbuilddeps 2>&1) || skip "$missing"

# In a copy: dpkg-buildpackage writes into the tree and beside it.
tree=$tmp/tree
mkdir "$tree"
(cd "$root" && git ls-files -z --cached --others --exclude-standard |
    tar --null --files-from - --create --ignore-failed-read 2>/dev/null) | tar -x -C "$tree"
(cd "$tree" && dpkg-buildpackage --build=binary --no-sign) >"$tmp/log" 2>&1 ||
    fail "dpkg-buildpackage: $(tail -n 20 "$tmp/log")"
ls "$tmp"/*.deb
for package in librill0 librill-dev rill python3-rill; do
    compgen -G "$tmp/${package}_*.deb" >/dev/null || fail "no $package"
done
# It closes no bug of Debian's, and nobody there is its maintainer.
lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs \
    "$tmp"/*.changes || fail "lintian"

# What is inside, unpacked.
for deb in "$tmp"/*.deb; do dpkg-deb -x "$deb" "$tmp/inside"; done
libraries=$(dirname "$(find "$tmp/inside" -name 'librill.so.0.1')")
export LD_LIBRARY_PATH=$libraries
"$tmp/inside/usr/bin/rill" info | grep oktopk >/dev/null || fail "rill info"
header=$(sed -n 's/^#define RILL_VERSION_\(MAJOR\|MINOR\|PATCH\) *//p' \
    "$root/include/rill/rill.h" | paste -sd .)
[[ $(dpkg-parsechangelog -l "$root/debian/changelog" -S Version) == "$header" ]] ||
    fail "debian/changelog is not of version $header"
if /usr/bin/python3 -c 'import numpy' 2>/dev/null; then
    env -u RILL_LIBRARY PYTHONPATH="$tmp/inside/usr/lib/python3/dist-packages" \
        PYTHONDONTWRITEBYTECODE=1 \
        /usr/bin/python3 -c 'import numpy as np, rill
comms = rill.local(2)
sums = rill.waitall([comm.iallreduce(np.ones(9, np.float32)) for comm in comms])
assert sums[1].dense().tolist() == [2.0] * 9
path = next(line.split()[-1] for line in open("/proc/self/maps") if "librill.so" in line)
print(path)
assert "/inside/" in path' || fail "python3-rill"
fi
