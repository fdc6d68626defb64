# Trends of the slices of `./soak day`, one file each: of what SAMPLE lines say, the slope per hour, mean and standard uncertainty over slices (of one
# slice: of its line); samples of a slice's first SKIP seconds are left out. And what was done per turn of work in the first and the last hour.
# Usage: awk -v SKIP=900 -f trend.awk FILE...
function slope_of(n, sx, sy, sxx, sxy) { return (n * sxy - sx * sy) / (n * sxx - sx * sx) }
function line(key,    i, n, x, y, sx, sy, sxx, sxy, mean, rss) {
    n = count[key]
    sx = sy = sxx = sxy = rss = 0
    for (i = 1; i <= n; i++) { x = xs[key, i]; y = ys[key, i]; sx += x; sy += y; sxx += x * x; sxy += x * y }
    slope = slope_of(n, sx, sy, sxx, sxy)
    mean = sy / n - slope * sx / n
    for (i = 1; i <= n; i++) rss += (ys[key, i] - mean - slope * xs[key, i]) ^ 2
    error = n > 2 ? sqrt(rss / (n - 2) / (sxx - sx * sx / n)) : 0
}
BEGIN { split("memory_KiB threads descriptors kernel_KiB", names, " ") }
FNR == 1 { slices++ }
$1 == "SAMPLE" {
    if (!((slices, "from") in first)) first[slices, "from"] = $3
    if ($3 - first[slices, "from"] < SKIP) next
    for (c = 1; c <= 4; c++) {
        key = slices SUBSEP $2 SUBSEP c
        i = ++count[key]
        xs[key, i] = $3 / 3600
        ys[key, i] = $(c + 3)
    }
}
$1 == "WORK" { t[++turns] = $2; shorts[turns] = $3; rounds[turns] = $4; of[turns] = slices; last[slices] = $2; if (!(slices in begin)) begin[slices] = $2 }
END {
    for (w = 1; w <= 2; w++) for (c = 1; c <= 4; c++) {
        when = w == 1 ? "work" : "idle"
        n = s = q = 0
        for (i = 1; i <= slices; i++) {
            key = i SUBSEP when SUBSEP c
            if (count[key] < 3) continue
            line(key)
            n++; s += slope; q += slope * slope; single = error
        }
        if (n == 0) continue
        m = s / n
        u = n > 1 ? sqrt((q - n * m * m < 0 ? 0 : q - n * m * m) / (n - 1) / n) : single
        printf "after %s, %s per hour: %.3f ± %.3f (%d slices)\n", when, names[c], m, u, n
    }
    for (e = 1; e <= 2; e++) {
        n = s = q = k = 0
        for (i = 1; i <= turns; i++) {
            if (e == 1 ? t[i] - begin[of[i]] > 3600 : last[of[i]] - t[i] > 3600) continue
            n++; s += rounds[i]; q += rounds[i] ^ 2; k += shorts[i]
        }
        if (n < 2) continue
        m = s / n
        v = (q - n * m * m) / (n - 1)
        printf "%s hour: %.1f ± %.1f rounds and %.2f short programs per turn of work (%d turns)\n", e == 1 ? "first" : "last", m, sqrt((v < 0 ? 0 : v) / n), k / n, n
    }
}
