/* SigV4 against the examples of Amazon's documentation, and the small parsers of the S3 client. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "storage/s3/digest_priv.h"
#include "storage/s3/doc_priv.h"
#include "storage/s3/keys_priv.h"
#include "storage/s3/profile_priv.h"
#include "storage/s3/sigv4_priv.h"
#include "storage/s3/url.h"

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The signature of request, whose keys are those of the examples. */
static void expect_signature(struct ash_sigv4_request request, const char *access, const char *secret,
                             const char *signature)
{
    struct ash_s3_keys keys = {0};
    struct ash_str text = {0};

    snprintf(keys.access, sizeof(keys.access), "%s", access);
    snprintf(keys.secret, sizeof(keys.secret), "%s", secret);
    assert_int_equal(ash_sigv4_sign(&request, &keys, &text), 0);
    assert_non_null(strstr(text.data, "Signature="));
    assert_string_equal(strstr(text.data, "Signature=") + strlen("Signature="), signature);
    ash_str_fini(&text);
}

/* "Examples: signature calculations" of the S3 API reference. */
static void expect_s3_example(struct ash_sigv4_request request, const char *signature)
{
    request.region = "us-east-1";
    request.service = "s3";
    request.stamp = "20130524T000000Z";
    expect_signature(request, "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", signature);
}

static void reading_a_range_is_signed_as_documented(void **state)
{
    const struct ash_s3_pair headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                          {"range", "bytes=0-9"},
                                          {"x-amz-date", "20130524T000000Z"},
                                          {"x-amz-content-sha256", EMPTY_HASH}};

    (void)state;
    expect_s3_example((struct ash_sigv4_request){.method = "GET",
                                                 .path = "/test.txt",
                                                 .headers = headers,
                                                 .header_count = ASH_COUNT(headers),
                                                 .payload_hash = EMPTY_HASH},
                      "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

static void writing_an_object_is_signed_as_documented(void **state)
{
    static const char body[] = "Welcome to Amazon S3.";
    char hash[ASH_SHA256_HEX_BYTES];
    struct ash_str path = {0};
    const struct ash_s3_pair headers[] = {{"x-amz-storage-class", "REDUCED_REDUNDANCY"},
                                          {"host", "examplebucket.s3.amazonaws.com"},
                                          {"date", "Fri, 24 May 2013 00:00:00 GMT"},
                                          {"x-amz-date", "20130524T000000Z"},
                                          {"x-amz-content-sha256", hash}};

    (void)state;
    assert_int_equal(ash_sha256_hex(body, strlen(body), hash), 0);
    assert_int_equal(ash_uri_encode(&path, "/test$file.text", true), 0);
    assert_string_equal(path.data, "/test%24file.text");
    expect_s3_example((struct ash_sigv4_request){.method = "PUT",
                                                 .path = path.data,
                                                 .headers = headers,
                                                 .header_count = ASH_COUNT(headers),
                                                 .payload_hash = hash},
                      "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd");
    ash_str_fini(&path);
}

static void a_query_is_signed_sorted_as_documented(void **state)
{
    const struct ash_s3_pair headers[] = {{"host", "examplebucket.s3.amazonaws.com"},
                                          {"x-amz-date", "20130524T000000Z"},
                                          {"x-amz-content-sha256", EMPTY_HASH}};
    const struct ash_s3_pair lifecycle[] = {{"lifecycle", ""}}, list[] = {{"prefix", "J"}, {"max-keys", "2"}};
    struct ash_sigv4_request request = {.method = "GET",
                                        .path = "/",
                                        .query = lifecycle,
                                        .query_count = 1,
                                        .headers = headers,
                                        .header_count = ASH_COUNT(headers),
                                        .payload_hash = EMPTY_HASH};

    (void)state;
    expect_s3_example(request, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
    request.query = list;
    request.query_count = ASH_COUNT(list);
    expect_s3_example(request, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
}

/* get-vanilla and get-vanilla-query-order-key-case of Amazon's test suite. */
static void the_test_suite_is_signed_as_documented(void **state)
{
    const struct ash_s3_pair headers[] = {{"host", "example.amazonaws.com"}, {"x-amz-date", "20150830T123600Z"}};
    const struct ash_s3_pair query[] = {{"Param2", "value2"}, {"Param1", "value1"}};
    struct ash_sigv4_request request = {.method = "GET",
                                        .path = "/",
                                        .headers = headers,
                                        .header_count = ASH_COUNT(headers),
                                        .payload_hash = EMPTY_HASH,
                                        .region = "us-east-1",
                                        .service = "service",
                                        .stamp = "20150830T123600Z"};
    const char *access = "AKIDEXAMPLE", *secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    (void)state;
    expect_signature(request, access, secret, "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31");
    request.query = query;
    request.query_count = ASH_COUNT(query);
    expect_signature(request, access, secret, "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500");
}

static void times_are_stamped_in_utc(void **state)
{
    char stamp[ASH_S3_STAMP_BYTES];

    (void)state;
    ash_sigv4_stamp(1369353600.9, stamp);
    assert_string_equal(stamp, "20130524T000000Z");
    assert_true(ash_s3_time_parse("2013-05-24T00:00:00.000Z") == 1369353600.0);
    assert_true(ash_s3_time_parse("yesterday") == 0);
}

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static void addresses_are_read(void **state)
{
    struct ash_s3_url url;
    struct ash_s3_endpoint endpoint;

    (void)state;
    assert_int_equal(ash_s3_url_parse("s3://bkt/a b/%41/../c", &url, NULL), 0);
    assert_string_equal(url.bucket, "bkt");
    assert_string_equal(url.key, "a b/%41/../c");
    assert_int_equal(ash_s3_url_parse("s3://bkt", &url, NULL), 0);
    assert_string_equal(url.key, "");
    assert_int_equal(ash_s3_endpoint_parse("https://[::1]:9000/minio/", &endpoint, NULL), 0);
    assert_true(endpoint.is_https);
    assert_string_equal(endpoint.host, "[::1]:9000");
    assert_string_equal(endpoint.path, "/minio");
}

static void bad_addresses_are_refused(void **state)
{
    static const char *const urls[] = {"s3://",         "s3:///key",    "s3://a",
                                       "s3://bk?t/key", "s4://bkt/key", "s3://bkt/\xff"};
    static const char *const endpoints[] = {"localhost:9000", "ftp://host", "http://", "http://a b", "http://h/a?b"};
    char long_key[1100] = "s3://bkt/";
    struct ash_s3_url url;
    struct ash_s3_endpoint endpoint;

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(urls); i++) {
        struct ash_err err = {0};

        assert_int_equal(ash_s3_url_parse(urls[i], &url, &err), -EINVAL);
        assert_true(err.text[0] != '\0');
    }
    for (size_t i = 0; i < ASH_COUNT(endpoints); i++)
        assert_int_equal(ash_s3_endpoint_parse(endpoints[i], &endpoint, NULL), -EINVAL);
    memset(long_key + 9, 'k', 1024);
    assert_int_equal(ash_s3_url_parse(long_key, &url, NULL), 0);
    long_key[9 + 1024] = 'k';
    assert_int_equal(ash_s3_url_parse(long_key, &url, NULL), -EINVAL);
    assert_true(ash_s3_bucket_fits_host("my-bucket"));
    assert_false(ash_s3_bucket_fits_host("my.bucket"));
    assert_false(ash_s3_bucket_fits_host("My-bucket"));
}

/* ---- XML --------------------------------------------------------------------------------------------------------- */

static int parse(const char *text, const char *root, struct ash_s3_doc *doc)
{
    struct ash_err err = {0};
    int rc = ash_s3_doc_parse(text, strlen(text), root, doc, &err);

    assert_true((rc < 0) == (err.text[0] != '\0'));
    return rc;
}

static void lists_are_read(void **state)
{
    struct ash_s3_doc doc = {0};

    (void)state;
    assert_int_equal(parse("<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
                           "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"
                           "<EncodingType>url</EncodingType>"
                           "<Contents><Key>a%20b+c%2B</Key><Size>18446744073</Size><ETag>&quot;x&quot;</ETag>"
                           "<LastModified>2013-05-24T00:00:00.000Z</LastModified><Owner><ID>k</ID></Owner></Contents>"
                           "<CommonPrefixes><Prefix>d/</Prefix></CommonPrefixes></ListBucketResult>",
                           "ListBucketResult", &doc),
                     0);
    assert_int_equal(doc.item_count, 2);
    assert_string_equal(doc.items[0].key, "a b c+");
    assert_true(doc.items[0].size_bytes == 18446744073u);
    assert_string_equal(doc.items[0].etag, "\"x\"");
    assert_true(doc.items[1].is_prefix);
    assert_string_equal(doc.next, "t&1");
    ash_s3_doc_fini(&doc);
}

static void bad_documents_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "not xml",
        "<ListBucketResult>",
        "<Other/>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>99999999999999999999</Size></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%4</Key><Size>1</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><EncodingType>url</EncodingType><Contents><Key>%00</Key><Size>1</Size></Contents>"
        "</ListBucketResult>",
        "<!DOCTYPE a [<!ENTITY b \"c\">]><ListBucketResult>&b;</ListBucketResult>",
    };

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        struct ash_s3_doc doc = {0};

        if (parse(texts[i], "ListBucketResult", &doc) != -EBADMSG) fail_msg("was taken: %s", texts[i]);
    }
}

/* ---- profiles ---------------------------------------------------------------------------------------------------- */

static void profiles_are_read(void **state)
{
    static const char credentials[] =
        "# comment\n[default]\naws_access_key_id = A\naws_secret_access_key=B=\n"
        "[work]\r\naws_access_key_id=C\r\naws_secret_access_key=D\r\naws_session_token=E\r\n";
    static const char config[] = "[default]\nregion=eu-west-1\n[profile work]\nregion = us-west-2\ns3 =\n"
                                 "  addressing_style = path\nendpoint_url = http://h:1\n[work]\nregion = wrong\n"
                                 "[profile role]\nrole_arn = arn\n";
    struct ash_s3_profile profile = {0};

    (void)state;
    assert_int_equal(ash_s3_profile_parse(&(struct ash_s3_profile_file){config, "config", strlen(config), true}, "work",
                                          &profile, NULL),
                     0);
    assert_int_equal(
        ash_s3_profile_parse(&(struct ash_s3_profile_file){credentials, "cred", strlen(credentials), false}, "work",
                             &profile, NULL),
        0);
    assert_string_equal(profile.keys.access, "C");
    assert_string_equal(profile.keys.secret, "D");
    assert_string_equal(profile.keys.token, "E");
    assert_string_equal(profile.region, "us-west-2");
    assert_string_equal(profile.addressing, "path");
    assert_string_equal(profile.endpoint, "http://h:1");
    profile = (struct ash_s3_profile){0};
    assert_int_equal(
        ash_s3_profile_parse(&(struct ash_s3_profile_file){credentials, "cred", strlen(credentials), false}, "default",
                             &profile, NULL),
        0);
    assert_string_equal(profile.keys.secret, "B=");
    assert_int_equal(ash_s3_profile_parse(&(struct ash_s3_profile_file){config, "config", strlen(config), true}, "role",
                                          &profile, NULL),
                     0);
    assert_string_equal(profile.elsewhere, "role_arn");
}

static void bad_profiles_name_their_line(void **state)
{
    static const char *const texts[] = {"[default]\naws_access_key_id\n", "[default]\n[open\n", "a=b\n\nc\n"};
    static const char *const lines[] = {"f:2:", "f:2:", "f:3:"};

    (void)state;
    for (size_t i = 0; i < ASH_COUNT(texts); i++) {
        struct ash_s3_profile profile = {0};
        struct ash_err err = {0};

        assert_int_equal(ash_s3_profile_parse(&(struct ash_s3_profile_file){texts[i], "f", strlen(texts[i]), false},
                                              "default", &profile, &err),
                         -EINVAL);
        assert_memory_equal(err.text, lines[i], strlen(lines[i]));
    }
}

static void keys_of_endpoints_are_read(void **state)
{
    static const char good[] = "{\"AccessKeyId\":\"A\",\"SecretAccessKey\":\"B\",\"Token\":\"C\",\"Expiration\":"
                               "\"2013-05-24T00:00:00Z\"}";
    struct ash_s3_keys keys = {0};

    (void)state;
    assert_int_equal(ash_s3_keys_parse(good, strlen(good), "endpoint", &keys, NULL), 0);
    assert_string_equal(keys.token, "C");
    assert_true(keys.expires_s == 1369353600.0);
    assert_true(ash_s3_keys_parse("{}", 2, "endpoint", &keys, NULL) < 0);
    assert_true(ash_s3_keys_parse("[", 1, "endpoint", &keys, NULL) < 0);
}

static void many_sums_at_once_are_those_of_openssl(void **state)
{
    static const size_t blocks[] = {0, 1, 2, 55, 1024};
    uint8_t *bytes = malloc((size_t)ASH_MD5_LANES * 1024 * ASH_MD5_BLOCK_BYTES);

    (void)state;
    assert_non_null(bytes);
    for (size_t i = 0; i < (size_t)ASH_MD5_LANES * 1024 * ASH_MD5_BLOCK_BYTES; i++)
        bytes[i] = (uint8_t)ash_rng_u64(7, 0, i);
    for (size_t n = 0; n < ASH_COUNT(blocks); n++) {
        size_t size_bytes = blocks[n] * ASH_MD5_BLOCK_BYTES;
        uint8_t sums[ASH_MD5_LANES][ASH_MD5_BYTES], expected[ASH_MD5_BYTES];
        const uint8_t *texts[ASH_MD5_LANES];

        for (size_t i = 0; i < ASH_MD5_LANES; i++)
            texts[i] = bytes + i * (size_bytes + 1) % 4096; /* at odd addresses too */
        ash_md5_lanes(texts, size_bytes, sums);
        for (size_t i = 0; i < ASH_MD5_LANES; i++) {
            assert_int_equal(ash_md5_of(texts[i], size_bytes, expected), 0);
            assert_memory_equal(sums[i], expected, ASH_MD5_BYTES);
        }
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_a_range_is_signed_as_documented),
        cmocka_unit_test(writing_an_object_is_signed_as_documented),
        cmocka_unit_test(a_query_is_signed_sorted_as_documented),
        cmocka_unit_test(the_test_suite_is_signed_as_documented),
        cmocka_unit_test(times_are_stamped_in_utc),
        cmocka_unit_test(addresses_are_read),
        cmocka_unit_test(bad_addresses_are_refused),
        cmocka_unit_test(lists_are_read),
        cmocka_unit_test(bad_documents_are_refused),
        cmocka_unit_test(profiles_are_read),
        cmocka_unit_test(bad_profiles_name_their_line),
        cmocka_unit_test(keys_of_endpoints_are_read),
        cmocka_unit_test(many_sums_at_once_are_those_of_openssl),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
